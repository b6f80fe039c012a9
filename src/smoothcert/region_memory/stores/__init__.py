"""Stores: where a memory is kept, a file for each kind of database."""

from smoothcert.region_memory.stores.base import STORES, Store, open_store, store_for
from smoothcert.region_memory.stores.sqlite import SqliteStore

__all__ = ["STORES", "SqliteStore", "Store", "open_store", "store_for"]
