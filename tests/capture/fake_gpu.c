/* Stands in for libcuda and for the profiler's NVTX library: every call is a line "PID NAME" in the file $FAKE_GPU_LOG. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void note(const char *name, const char *text) {
  const char *path = getenv("FAKE_GPU_LOG");
  if (!path) return;
  FILE *log = fopen(path, "a");
  fprintf(log, "%d %s%s%s\n", (int)getpid(), name, text ? " " : "", text ? text : "");
  fclose(log);
}

/* Driver: one device, in use from the moment that fakeUseDevice is called. */
static int in_use, refuses;
void fakeUseDevice(void) { in_use = 1; }
void fakeRefuse(void) { refuses = 1; }
int cuDeviceGetCount(int *count) { *count = 1; return in_use ? 0 : 3; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0; *active = in_use; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &in_use; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxPushCurrent_v2(void *context) { note("push", NULL); return 0; }
int cuCtxPopCurrent_v2(void **context) { note("pop", NULL); return 0; }
int cuThreadExchangeStreamCaptureMode(int *mode) { int old = 0; static int now; old = now; now = *mode; *mode = old; return 0; }
int cuCtxSynchronize(void) { note("synchronize", NULL); return 0; }
int cuProfilerStart(void) { note("profiler start", NULL); return refuses ? 999 : 0; }
int cuProfilerStop(void) { note("profiler stop", NULL); return 0; }

/* NVTX: what the header-only client asks of the injection library. */
typedef const void *(*export_table)(uint32_t);
typedef struct { size_t size; int (*module_table)(int, void ****, unsigned *); } callbacks;
static uint64_t last;
static void mark(const char *text) { note("mark", text); }
static uint64_t range_start(const char *text) { note("begin", text); return ++last; }
static void range_end(uint64_t range) { char number[32]; snprintf(number, sizeof number, "%d", (int)range); note("end", number); }
int InitializeInjectionNvtx2(export_table get) {
  void ***table;
  unsigned size;
  const callbacks *found = get(1);
  if (!found->module_table(1, &table, &size) || size < 8) return 0;
  *table[2] = (void *)mark;
  *table[5] = (void *)range_start;
  *table[7] = (void *)range_end;
  return 1;
}
