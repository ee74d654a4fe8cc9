"""What was seen of a program's syncs from inside it becomes a report: ``seen`` → ``assemble`` → ``findings``."""
