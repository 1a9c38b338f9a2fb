"""What answers the functions and classes of a library while a program is traced.

    @stands_for("skimage.exposure")
    def adjust_gamma(image, gamma=1, gain=1): ...

SciPy's and pandas' functions are declared with these names and no others, so what is followed of
them can be followed of any library. Here is what declares an answer, says what it reads of
objects, lets the user's own code in between run as the user's, and refuses. The modules beside it
have what an answer is made of: `arrays`, what stands for arrays and how NumPy's functions treat it;
`primitives`, what can stand on a tape; `tapes`, tapes and the runs that record them; `solvers`,
functions of the user's that are called again and again; `tables`, Series and DataFrames.
"""

from tapegrad.core.handlers import let_through as let_through
from tapegrad.core.statics import is_generator as is_generator
from tapegrad.extending.declaring import Carrier as Carrier
from tapegrad.extending.declaring import Untraced as Untraced
from tapegrad.extending.declaring import answering as answering
from tapegrad.extending.declaring import answers_of as answers_of
from tapegrad.extending.declaring import any_traced as any_traced
from tapegrad.extending.declaring import as_parameter as as_parameter
from tapegrad.extending.declaring import declare_method as declare_method
from tapegrad.extending.declaring import held as held
from tapegrad.extending.declaring import held_in as held_in
from tapegrad.extending.declaring import is_traced as is_traced
from tapegrad.extending.declaring import note_memory as note_memory
from tapegrad.extending.declaring import read as read
from tapegrad.extending.declaring import refusal as refusal
from tapegrad.extending.declaring import seen as seen
from tapegrad.extending.declaring import stands_for as stands_for
from tapegrad.extending.declaring import taken_by as taken_by
from tapegrad.observe.answers.answers import as_called as as_called
from tapegrad.observe.answers.answers import declare as declare
from tapegrad.observe.answers.answers import declare_calls as declare_calls
from tapegrad.observe.answers.answers import declare_late as declare_late
from tapegrad.observe.answers.answers import declare_operands as declare_operands
from tapegrad.observe.answers.answers import original_of as original_of
from tapegrad.observe.answers.answers import row_of as row_of
from tapegrad.observe.guards.foreign import answers as answers
from tapegrad.observe.objects import randomness as randomness
from tapegrad.observe.objects.settings import note_settings as note_settings
from tapegrad.observe.observer import following as following
from tapegrad.observe.observer import observed as observed
from tapegrad.observe.observer import observer as observer
from tapegrad.observe.observer import unobserved as unobserved
from tapegrad.observe.packages.callers import names_in as names_in
from tapegrad.observe.packages.callers import note_variables as note_variables
from tapegrad.observe.program.source import asks_itself as asks_itself
from tapegrad.observe.program.source import at_line as at_line
from tapegrad.observe.program.source import user_frames as user_frames
from tapegrad.observe.values.texts import tell as tell
from tapegrad.tracing.frontend.calling import borrowing as borrowing
from tapegrad.tracing.frontend.calling.accepting import accepted as accepted
from tapegrad.tracing.frontend.calling.accepting import error_of as error_of
from tapegrad.tracing.recording.trace import refusing as refusing
from tapegrad.tracing.runs.floating import is_operand as is_operand
from tapegrad.tracing.runs.floating import watched as watched
