// Which of Highway's targets the codecs are compiled for. Include before anything of Highway.
#pragma once

// AVX3_DL adds nothing that the codecs use, and every target costs a compilation.
#define HWY_DISABLED_TARGETS HWY_AVX3_DL
