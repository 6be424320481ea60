// Every codec's device code: for translation units that are made on demand, which name one of them.
#pragma once

#include "kernels/codecs/anybit.h"
#include "kernels/codecs/codebooks.h"
#include "kernels/codecs/given_scale.h"
#include "kernels/codecs/logfmt.h"
#include "kernels/codecs/message_scale.h"
#include "kernels/codecs/narrow.h"
#include "kernels/codecs/of_header.h"
#include "kernels/codecs/plain.h"
#include "kernels/codecs/quickreduce.h"
#include "kernels/codecs/scaled.h"
#include "kernels/codecs/shared_scale.h"
#include "kernels/codecs/two_pass.h"
#include "reference/codecs/formats/formats.h"
