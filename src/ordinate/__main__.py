"""python -m ordinate"""

import sys

from ordinate.cli import main

sys.exit(main())
