"""Serves every part that writes: in which form a cursor's state is stored. The two say and do the
same things, each in its own way.
"""

from cursorkeeper.core.native_form import NativeForm
from cursorkeeper.core.whole_form import WholeForm

Form = NativeForm | WholeForm
