// Tells Swift what streamd-map.h says: atomic fields are not imported.
#include <stddef.h>

enum map_field {
  MAP_MAGIC,
  MAP_VERSION,
  MAP_HEADER_BYTES,
  MAP_GENERATION,
  MAP_EPOCH,
  MAP_REGION_BYTES,
  MAP_SLOTS,
  MAP_INDEX_OFFSET,
  MAP_RING_OFFSET,
  MAP_RING_BYTES,
  MAP_FIRST,
  MAP_END,
  MAP_WAKE,
  MAP_STATE,
  MAP_RECORD_SIZE,
  MAP_RECORD_ID,
  MAP_RECORD_TIME,
};

// The offset of a field in the header, or in a record.
size_t map_offset(enum map_field field);

enum map_constant {
  MAP_MAGIC_NUMBER,
  MAP_VERSION_NUMBER,
  MAP_BYTES_OF_HEADER,
  MAP_BYTES_OF_RECORD,
  MAP_LIVE,
  MAP_REPLACED,
  MAP_ENDED,
};

unsigned long long map_value(enum map_constant constant);
