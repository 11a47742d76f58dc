/* replay FILE...: the inputs of a fuzz target, without a fuzzer. */
#include "check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int count, char **files) {
  for (int i = 1; i < count; i++) {
    FILE *file = fopen(files[i], "rb");
    CHECK(file && fseek(file, 0, SEEK_END) == 0);
    size_t size = (size_t)ftell(file);
    uint8_t *bytes = malloc(size); /* exactly, so that a read beyond it is found */
    rewind(file);
    CHECK(bytes && fread(bytes, 1, size, file) == size);
    fclose(file);
    fprintf(stderr, "%s\n", files[i]);
    LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
  }
  return count < 2;
}
