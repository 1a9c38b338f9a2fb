"""What answers the functions and classes of a library while a program is traced.

    @stands_for("skimage.exposure")
    def adjust_gamma(image, gamma=1, gain=1): ...

SciPy's and pandas' functions are declared with these names and no others, so what is followed of
them can be followed of any library. Here is what declares an answer, says what it reads of
objects, lets the user's own code in between run as the user's, and refuses. The modules beside it
have what an answer is made of: `arrays`, what stands for arrays and how NumPy's functions treat it;
`primitives`, what can stand on a tape; `tapes`, tapes and how functions come on them; `runs`, the
run that is traced; `loops`, of which one round is; `solvers` and `sparsity`, functions of the
user's that are called again and again; `tables`, Series and DataFrames.
"""

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
from tapegrad.observe.observer import observed as observed
from tapegrad.observe.observer import unobserved as unobserved
from tapegrad.observe.program.source import at_line as at_line
