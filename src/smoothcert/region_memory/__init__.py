"""The memory-enhanced classifier: what makes certificates with a σ of their own per input sound."""

from smoothcert.region_memory.answers import MemoryAnswer
from smoothcert.region_memory.chain import Head
from smoothcert.region_memory.errors import IncompleteMemoryError, StoreError
from smoothcert.region_memory.memory import RegionMemory
from smoothcert.region_memory.records import StoredAnswer
from smoothcert.region_memory.statement import MemoryStatement
from smoothcert.region_memory.stores import SqliteStore, Store, open_store

__all__ = [
    "Head",
    "IncompleteMemoryError",
    "MemoryAnswer",
    "MemoryStatement",
    "RegionMemory",
    "SqliteStore",
    "Store",
    "StoreError",
    "StoredAnswer",
    "open_store",
]
