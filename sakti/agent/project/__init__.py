"""Find, trust and read the files with which a workspace changes what sakti does."""
