#pragma once

/// The commit that the programs were built from, abbreviated; empty if the build does not know it.
const char *streamd_commit(void);
