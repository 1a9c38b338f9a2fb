"""A library's objects as trees; Series and DataFrames, taken apart and put together."""

from tapegrad.core.instances import Functions as Functions
from tapegrad.core.instances import adopt as adopt
from tapegrad.core.instances import declare as declare
from tapegrad.core.late import load as load
from tapegrad.core.statics import Keyed as Keyed
from tapegrad.core.statics import Returnable as Returnable
from tapegrad.core.statics import exact_key as exact_key
from tapegrad.core.statics import unlike as unlike
from tapegrad.core.tables import Column as Column
from tapegrad.core.tables import Labels as Labels
from tapegrad.core.tables import as_trees as as_trees
from tapegrad.core.tables import built as built
from tapegrad.core.tables import contents_key as contents_key
from tapegrad.core.tables import copies_on_write as copies_on_write
from tapegrad.core.tables import index_key as index_key
from tapegrad.core.tables import is_frame as is_frame
from tapegrad.core.tables import is_of_numbers as is_of_numbers
from tapegrad.core.tables import is_series as is_series
from tapegrad.core.tables import is_table as is_table
from tapegrad.core.tables import pandas as pandas
from tapegrad.core.tables import taken_apart as taken_apart
from tapegrad.core.tables import turned as turned
