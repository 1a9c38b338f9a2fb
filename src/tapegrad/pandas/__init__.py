"""Proxies of pandas' Series and DataFrames while a function is traced, and their methods."""

from __future__ import annotations

from tapegrad.extending.arrays import dispatch
from tapegrad.pandas import applying, arranging, dataframes, groups, keyed, labels, rolling

dispatch.labelled, dispatch.has_labels = dataframes.labelled, dataframes.has_labels
dispatch.table_method, dispatch.table_filled = rolling.method_of, dataframes.filled
dispatch.table_aggregated, dispatch.table_at = groups.aggregated, labels.At
dispatch.table_item, dispatch.table_write = keyed.chosen, keyed.written
arranging.declare_all()
applying.declare_all()
