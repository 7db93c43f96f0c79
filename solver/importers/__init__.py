"""Raw files of other tools, read into the documents of the problem; one format a file.

An importer imports nothing of the problem: it returns plain documents, which the problem then validates.
"""

from solver.importers.hf_config import ImportedModel, import_hf_config
from solver.importers.lengths import ImportedLengths, import_lengths
from solver.importers.lengths_read import Wish

__all__ = ["ImportedLengths", "ImportedModel", "Wish", "import_hf_config", "import_lengths"]
