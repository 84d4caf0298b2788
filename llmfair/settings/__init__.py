"""Everything a user can set, once: name, default, what it means, and whether it can change a result.

The command line, the environment, `llmfair.toml` and the Python API all read these dataclasses, so a setting is
spelled, documented and checked the same everywhere. Precedence: defaults < llmfair.toml < LLMFAIR_* < flags.
"""

from llmfair.settings.commands import *
from llmfair.settings.declaration import *
