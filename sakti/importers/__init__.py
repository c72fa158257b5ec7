"""Import the history of other programs: one file per program, one writer.

`entries` defines what an importer yields, `lines` reads JSON line by line, `branches` finds the newest branch of a
tree, `writer` turns entries into threads and messages, `service` finds sources and drives an import.
"""
