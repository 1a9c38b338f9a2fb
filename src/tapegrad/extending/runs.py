"""The run that is traced: its reads and calls, the owner of the running code, and the errors that
end it."""

from tapegrad.core.handlers import let_through as let_through
from tapegrad.core.statics import is_generator as is_generator
from tapegrad.observe.answers.answers import original_of as original_of
from tapegrad.observe.answers.answers import row_of as row_of
from tapegrad.observe.aside import aside as aside
from tapegrad.observe.guards.package_calls import answers as answers
from tapegrad.observe.objects import randomness as randomness
from tapegrad.observe.objects.settings import note_settings as note_settings
from tapegrad.observe.observer import following as following
from tapegrad.observe.observer import observer as observer
from tapegrad.observe.packages.callers import names_in as names_in
from tapegrad.observe.packages.callers import note_variables as note_variables
from tapegrad.observe.program.source import asks_itself as asks_itself
from tapegrad.observe.program.source import user_frames as user_frames
from tapegrad.observe.values.texts import tell as tell
from tapegrad.tracing.frontend.calling import library_code as library_code
from tapegrad.tracing.frontend.calling.validation import accepted as accepted
from tapegrad.tracing.frontend.calling.validation import error_of as error_of
from tapegrad.tracing.recording.trace import refusing as refusing
from tapegrad.tracing.runs.floating_errors import is_operand as is_operand
from tapegrad.tracing.runs.floating_errors import watched as watched
