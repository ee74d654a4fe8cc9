"""What stands around a sync in its source: what it copies, what it is near, what an explicit wait is there for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Literal

from nsys_sync.analysis.catalogue.operations import Candidate
from nsys_sync.analysis.catalogue.syntax import Scope, Source, last_name, own_nodes
from nsys_sync.analysis.catalogue.tensors import is_cpu, is_number, is_true, keyword
from nsys_sync.analysis.catalogue.words import Words, named

#: What an upload or download copies: a tensor just made on the CPU, Python numbers, a NumPy array, pinned memory, a
#: batch of a loader, a module.
Operand = Literal["fresh", "number", "list", "array", "pinned", "batch", "module"]

#: What is near: a clock, a profiler, a copy to the host that is still under way, streams to be ordered, a queue of
#: events, a handler that catches errors, a library that is given the memory, an exchange between ranks; a function that
#: does nothing else and whose callers are not seen; in a loop, outside of any, in a branch taken every so many steps;
#: the event recorded in the same function; the result reduced to one number at once; several reads side by side, or one
#: in a loop over values; in a library's code; with ``non_blocking=True``.
Near = Literal[
    "timing",
    "profiler",
    "async_copy",
    "streams",
    "queue",
    "error_check",
    "foreign",
    "collective",
    "alone",
    "in_loop",
    "outside_loop",
    "every_n",
    "recorded_here",
    "reduced",
    "several_reads",
    "read_loop",
    "library",
    "non_blocking",
]

WAITS = frozenset({"device_sync", "stream_sync", "event_sync", "jax_block", "cupy_sync", "empty_cache"})
_READS = frozenset({"item", "float", "int", "tolist"})
_ROUND = 3
_RARE = 10
_INTERVALS = re.compile(r"log|print|report|freq|every|interval|save|eval|display|checkpoint|ckpt")
_ONCE = re.compile(
    r"main|setup|__init__|cleanup|teardown|shutdown|close|warm_?up|finish|finalize|reset|stop|drain|flush|__del__|__exit__"
)
_FACTORIES = re.compile(
    r"(torch\.)(randn|rand|randint|zeros|ones|empty|full|arange|linspace|eye|normal|randperm|tril_indices|triu_indices)"
)
_ARRAYS = re.compile(r"torch\.(from_numpy|as_tensor|asarray)|numpy\.\w+|.*\.numpy")
_LOADERS = re.compile(
    r".*(loader|dataset|batches|prefetch|_dl|_iter|iterator)\w*|dl|data|train_data|val_data|test_data"
)
_BATCHES = re.compile(
    r"batch\w*|\w*_batch|inputs?|images?|imgs?|targets?|labels?|input_ids|attention_mask|data|samples?|xb|yb|[xy]"
)
_MODULES = re.compile(r"\w*(model|net|network|module|encoder|decoder|backbone|head|unet|vae|critic|actor|policy)\w*|m")
_MODULE_CLASSES = re.compile(
    r"(torch\.)?nn\.(\w+\.)?[A-Z]\w+|[A-Z]\w*(Model|Net|Module|Transformer|Pipeline|LMHead\w*)\w*"
)
_FOREIGN = re.compile(r".*\.(data_ptr|Isend|Irecv|Send|Recv|Allreduce|Bcast|to_dlpack|share_memory_?)|MPI\..*|comm\..*")
_REDUCTIONS = re.compile(r"sum|mean|max|min|amax|amin|any|all|logsumexp|\w+_loss|cross_entropy|binary_cross_entropy\w*")
_COLLECTIVE = re.compile(
    r".*\.(batch_isend_irecv|isend|irecv|send|recv|wait|barrier|all_\w+|reduce_scatter\w*|broadcast)"
)
_PASSING = re.compile(
    r"float|half|double|long|int|bfloat16|bool|type|view|reshape|unsqueeze|squeeze|contiguous|detach|clone|t|permute"
    r"|transpose|requires_grad_|repeat|expand|to"
)


def operand(source: Source, candidate: Candidate) -> Operand | None:
    """What an upload or download copies, None where the file does not show it."""
    node = candidate.node
    if not isinstance(node, ast.Call):
        return None
    if candidate.operation == "construct":
        return _of_constructor(source, node)
    if not isinstance(node.func, ast.Attribute):
        return "array" if node.args else None
    if _stands_alone(source, node) and node.func.attr in {"cpu", "cuda", "to"}:
        return "module"
    return _origin(source, node.func.value, 4)


def _stands_alone(source: Source, node: ast.Call) -> bool:
    """Whether a call is a statement of its own: only a module is moved in place."""
    return isinstance(source.parents.get(node), ast.Expr)


def _of_constructor(source: Source, node: ast.Call) -> Operand:
    value = node.args[0] if node.args else keyword(node, "data")
    if value is None or is_number(value):
        return "number"
    if isinstance(value, ast.List | ast.ListComp | ast.Tuple | ast.BinOp):
        return "list"
    if isinstance(value, ast.Name):
        kinds = [b.value for b in source.bindings(value.id, value)]
        if kinds and all(isinstance(k, ast.List | ast.ListComp | ast.Tuple) for k in kinds):
            return "list"
    return "array"


def _origin(source: Source, node: ast.expr, depth: int) -> Operand | None:
    if depth == 0:
        return None
    if isinstance(node, ast.Call):
        return _origin_of_call(source, node, depth)
    if isinstance(node, ast.Subscript):
        inner = _origin(source, node.value, depth - 1)
        return inner if inner in {"batch", "pinned"} else None
    if isinstance(node, ast.Name):
        return _origin_of_name(source, node, depth)
    return "module" if isinstance(node, ast.Attribute) and _MODULES.fullmatch(node.attr) else None


def _origin_of_call(source: Source, node: ast.Call, depth: int) -> Operand | None:
    dotted, name = source.dotted(node.func), last_name(node.func)
    if name == "pin_memory" or is_true(keyword(node, "pin_memory")):
        return "pinned"
    if _FACTORIES.fullmatch(dotted) and keyword(node, "device") is None:
        return "fresh"
    if dotted in {"torch.tensor", "torch.Tensor", "torch.FloatTensor", "torch.LongTensor"}:
        made = _of_constructor(source, node)
        return "list" if made in {"list", "number"} else "array"
    if _ARRAYS.fullmatch(dotted):
        return "array"
    if dotted == "next":
        return "batch"
    if _MODULE_CLASSES.fullmatch(dotted) or name in {"from_pretrained", "from_config"}:
        return "module"
    if isinstance(node.func, ast.Attribute) and _PASSING.fullmatch(name):
        return _origin(source, node.func.value, depth - 1)
    return None


def _origin_of_name(source: Source, node: ast.Name, depth: int) -> Operand | None:
    kinds: set[Operand | None] = set()
    for binding in source.bindings(node.id, node):
        if binding.kind in {"element", "part"} and binding.value is not None:
            kinds.add(_of_loader(source, binding.value, depth))
        elif binding.kind == "value" and binding.value is not None:
            # x = x.to(device) says nothing new about x
            if not any(isinstance(n, ast.Name) and n.id == node.id for n in ast.walk(binding.value)):
                kinds.add(_origin(source, binding.value, depth - 1))
        else:
            kinds.add(None)
    if len(kinds) == 1 and None not in kinds:
        return kinds.pop()
    if kinds - {None}:
        return None
    if _MODULES.fullmatch(node.id):
        return "module"
    return "batch" if _BATCHES.fullmatch(node.id) else None


def _of_loader(source: Source, node: ast.expr, depth: int) -> Operand | None:
    """``batch`` for an element of a loader, or of a batch that is taken apart."""
    names = [last_name(n) for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)]
    if any(_LOADERS.fullmatch(n) for n in names):
        return "batch"
    if isinstance(node, ast.Call) and last_name(node.func) in {"items", "values"}:
        assert isinstance(node.func, ast.Attribute | ast.Name)
        node = node.func.value if isinstance(node.func, ast.Attribute) else node
    return "batch" if _origin(source, node, depth - 1) == "batch" else None


def near_all(
    source: Source, candidates: list[Candidate], words: Words, callers: tuple[ast.Call, ...]
) -> frozenset[Near]:
    """What is near any of the candidates; ``non_blocking`` only if all of them have it."""
    found = [near(source, c, words, callers) for c in candidates]
    every = frozenset.intersection(*found)
    return frozenset().union(*found) - ({"non_blocking"} - every)


def near(source: Source, candidate: Candidate, words: Words, callers: tuple[ast.Call, ...]) -> frozenset[Near]:
    """What is near a sync. For the only statement of a small function, what is near its callers counts too."""
    places: list[ast.AST] = [candidate.node]
    function = source.scope(candidate.node)
    if _is_wrapper(source, function, candidate.node):
        places += callers[:1] or source.calls.get(getattr(function, "name", ""), [])
    found: set[Near] = {"alone"} if len(places) == 1 and _is_wrapper(source, function, candidate.node) else set()
    for place in places:
        found |= set(_around(source, place, words))
    if candidate.operation in WAITS:
        found |= set(_purposes(source, candidate))
    if candidate.operation in _READS:
        found |= set(_other_reads(source, candidate))
    if _reduced(source, candidate.node):
        found.add("reduced")
    if isinstance(candidate.node, ast.Call) and is_true(keyword(candidate.node, "non_blocking")):
        found.add("non_blocking")
    if _once(source, candidate.node, 2):
        found.add("outside_loop")
    if _repeated(source, candidate.node, 2):
        found.add("in_loop")
    if _every_n(source, candidate.node):
        found.add("every_n")
    return frozenset(found)


def _is_wrapper(source: Source, function: Scope, node: ast.AST) -> bool:
    """Whether a function does nothing but wait."""
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    own = source.statement(node)
    body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    while len(body) == 1 and isinstance(body[0], ast.If) and not body[0].orelse:
        body = body[0].body
    return body == [own] or (len(body) == 2 and body[0] is own and isinstance(body[1], ast.Return))


def _neighbours(source: Source, node: ast.AST) -> Iterator[ast.stmt]:
    """The statements next to the node's own, also across the ends of a branch or ``with`` that it stands in."""
    statement = source.statement(node)
    before = after = True
    while statement is not None:
        block = source.block(statement)
        index = block.index(statement)
        yield from block[max(0, index - _ROUND) if before else index : index + (_ROUND if after else 0) + 1]
        before, after = before and index == 0, after and index == len(block) - 1
        up = source.parents.get(statement)
        statement = up if isinstance(up, ast.If | ast.Try | ast.With) and (before or after) else None


def _around(source: Source, node: ast.AST, words: Words) -> Iterator[Near]:
    for statement in _neighbours(source, node):
        for n in own_nodes(statement):
            if not isinstance(n, ast.Call):
                continue
            name = source.called(n)
            if named(words.time, name):
                yield "timing"
            if last_name(n.func) in {"cudaProfilerStart", "cudaProfilerStop"} or name.startswith("torch.cuda.profiler"):
                yield "profiler"


def _purposes(source: Source, candidate: Candidate) -> Iterator[Near]:
    """What an explicit wait can be there for."""
    node, scope = candidate.node, source.scope(candidate.node)
    calls = [n for n in ast.walk(source.class_of(node) or scope) if isinstance(n, ast.Call)]
    if any(_copies_to_host(source, c) for c in calls):
        yield "async_copy"
    names = [source.called(n) for n in ast.walk(scope) if isinstance(n, ast.Call)]
    if any(name.endswith((".elapsed_time",)) for name in names):
        yield "timing"
    if any(name.endswith(("cuda.stream", "cuda.Stream", ".wait_stream", ".wait_event")) for name in names):
        yield "streams"
    if any(_FOREIGN.fullmatch(name) for name in names):
        yield "foreign"
    if any(_COLLECTIVE.fullmatch(name) for name in names):
        yield "collective"
    if _of_queue(source, node):
        yield "queue"
    if _recorded_here(source, node, names):
        yield "recorded_here"
    for up in source.ancestors(node):
        if isinstance(up, ast.Try) and up.handlers and source.statement(node) in up.body:
            yield "error_check"


def _copies_to_host(source: Source, call: ast.Call) -> bool:
    """Whether a call copies to the host without waiting for it."""
    name = last_name(call.func)
    blocking = keyword(call, "blocking")
    if name in {"get", "asnumpy"} and isinstance(blocking, ast.Constant) and blocking.value is False:
        return True
    if not isinstance(call.func, ast.Attribute) or not (
        is_true(keyword(call, "non_blocking")) or (name == "copy_" and len(call.args) > 1 and is_true(call.args[1]))
    ):
        return False
    if name == "copy_":
        return not _is_device_buffer(source, call.func.value)
    device = keyword(call, "device") or (call.args[0] if call.args else None)
    return name == "cpu" or (name == "to" and is_cpu(source, device))


def _is_device_buffer(source: Source, target: ast.expr) -> bool:
    """Whether the target of a copy is plainly on the GPU: nothing else rules out that the host will read it."""
    while isinstance(target, ast.Subscript):
        target = target.value
    made = [b.value for b in source.bindings(target.id, target)] if isinstance(target, ast.Name) else []
    on_gpu = [isinstance(v, ast.Call) and keyword(v, "device") is not None for v in made]
    return (bool(on_gpu) and all(on_gpu)) or re.search(r"gpu|cuda|device|dev$", last_name(target)) is not None


def _of_queue(source: Source, node: ast.expr) -> bool:
    """Whether the event waited for comes out of a queue or ring, or the wait is guarded by a queue's length."""
    owner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else node
    texts = [owner]
    if isinstance(owner, ast.Name):
        texts += [b.value for b in source.bindings(owner.id, owner) if b.value is not None]
    for text in texts:
        for n in ast.walk(text):
            if isinstance(n, ast.Call) and last_name(n.func) in {"pop", "popleft", "get", "dequeue"}:
                return True
            if isinstance(n, ast.Subscript) and isinstance(n.slice, ast.BinOp) and isinstance(n.slice.op, ast.Mod):
                return True
    up = next((a for a in source.ancestors(node) if isinstance(a, ast.If)), None)
    return up is not None and any(isinstance(n, ast.Call) and last_name(n.func) == "len" for n in ast.walk(up.test))


def _reduced(source: Source, node: ast.expr) -> bool:
    """Whether a result is reduced where it is made: ``x[mask].sum()``, ``torch.mean(x[mask])``, a loss of it."""
    up = source.parents.get(node)
    call = source.parents.get(up) if isinstance(up, ast.Attribute) else up
    return isinstance(call, ast.Call) and call is not node and _REDUCTIONS.fullmatch(last_name(call.func)) is not None


def _recorded_here(source: Source, node: ast.expr, names: list[str]) -> bool:
    """Whether the event waited for is recorded in the same function."""
    owner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else node
    return f"{source.dotted(owner)}.record" in names


def _every_n(source: Source, node: ast.AST) -> bool:
    """Whether a branch around a place is taken every so many steps (``if step % 50 == 0``, ``% log_every``)."""
    statement = source.statement(node)
    for up in source.ancestors(node):
        if isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return False
        if isinstance(up, ast.If) and up is not statement and statement not in up.orelse:
            mod = [n for n in ast.walk(up.test) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod)]
            if any(_is_rare(n.right) for n in mod):
                return True
    return False


def _is_rare(interval: ast.expr) -> bool:
    if isinstance(interval, ast.Constant):
        return isinstance(interval.value, int) and interval.value >= _RARE
    return _INTERVALS.search(ast.unparse(interval).lower()) is not None


def _other_reads(source: Source, candidate: Candidate) -> Iterator[Near]:
    node = candidate.node
    names = _read_names(node)
    for up in source.ancestors(node):
        targets = [up.target] if isinstance(up, ast.For) else [g.target for g in getattr(up, "generators", [])]
        bound = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        if names & bound:
            yield "read_loop"
        if isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            break
    statement = source.statement(node)
    if statement is not None:
        block = source.block(statement)
        at = block.index(statement)
        reads = [n for s in block[max(0, at - 1) : at + 2] for n in own_nodes(s) if _is_read(source, n)]
        if len(reads) > 1:
            yield "several_reads"


def _read_names(node: ast.AST) -> set[str]:
    """The names of what is read, where it is a variable, its element or attribute and not the result of a call."""
    if isinstance(node, ast.Call):
        node = node.func.value if isinstance(node.func, ast.Attribute) else (node.args or [node.func])[0]
    names: set[str] = set()
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Subscript):
            names |= {n.id for n in ast.walk(node.slice) if isinstance(n, ast.Name)}
        node = node.value
    return names | ({node.id} if isinstance(node, ast.Name) else set())


def _is_read(source: Source, node: ast.AST) -> bool:
    """Whether a call brings one tensor's value to the host by itself."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        return node.func.attr in {"item", "tolist"} and not node.args
    if last_name(node.func) != "float" or not node.args:
        return False
    value = node.args[0]
    if isinstance(value, ast.Name):
        return all(b.kind != "element" for b in source.bindings(value.id, value))
    return isinstance(value, ast.Attribute | ast.Subscript)


def _once(source: Source, node: ast.AST, depth: int) -> bool:
    """Whether a place is outside of any loop as far as the file shows."""
    if source.loop(node) is not None:
        return False
    scope = source.scope(node)
    if isinstance(scope, ast.Module):
        return source.whole
    if isinstance(scope, ast.Lambda):
        return False
    if _ONCE.fullmatch(scope.name):
        return True
    calls = source.calls.get(scope.name, [])
    return depth > 0 and bool(calls) and all(_once(source, c, depth - 1) for c in calls)


def _repeated(source: Source, node: ast.AST, depth: int) -> bool:
    """Whether a place is in a loop, or in a function that this file calls in one."""
    if source.loop(node) is not None:
        return True
    scope = source.scope(node)
    calls = [] if isinstance(scope, ast.Module | ast.Lambda) else source.calls.get(scope.name, [])
    return depth > 0 and any(_repeated(source, c, depth - 1) for c in calls)
