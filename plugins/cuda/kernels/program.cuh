// The text that plugins/cuda/parts makes of a program takes the place of this file.
#pragma once

#error "this header is generated, see plugins/cuda/parts/part_text.h"
