"""CREATE TABLE texts of real Nsight Systems exports, one .sql file a schema version."""
