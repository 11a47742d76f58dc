#include "toml.h"
