"""Raw files of other tools, read into the documents of the problem; one format a file.

An importer imports nothing of the problem: it returns plain documents, which the problem then validates.
"""

from solver.importers.hf_config import ImportedModel, import_hf_config

__all__ = ["ImportedModel", "import_hf_config"]
