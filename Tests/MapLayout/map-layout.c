#include "map-layout.h"

#include "../../Sources/libstreamd/streamd-map.h"

size_t map_offset(enum map_field field) {
  switch (field) {
    case MAP_MAGIC: return offsetof(struct sdm_map_header, magic);
    case MAP_VERSION: return offsetof(struct sdm_map_header, version);
    case MAP_HEADER_BYTES: return offsetof(struct sdm_map_header, header_bytes);
    case MAP_GENERATION: return offsetof(struct sdm_map_header, generation);
    case MAP_EPOCH: return offsetof(struct sdm_map_header, epoch);
    case MAP_REGION_BYTES: return offsetof(struct sdm_map_header, region_bytes);
    case MAP_SLOTS: return offsetof(struct sdm_map_header, slots);
    case MAP_INDEX_OFFSET: return offsetof(struct sdm_map_header, index_offset);
    case MAP_RING_OFFSET: return offsetof(struct sdm_map_header, ring_offset);
    case MAP_RING_BYTES: return offsetof(struct sdm_map_header, ring_bytes);
    case MAP_FIRST: return offsetof(struct sdm_map_header, first);
    case MAP_END: return offsetof(struct sdm_map_header, end);
    case MAP_WAKE: return offsetof(struct sdm_map_header, wake);
    case MAP_STATE: return offsetof(struct sdm_map_header, state);
    case MAP_RECORD_SIZE: return offsetof(struct sdm_map_record, size);
    case MAP_RECORD_ID: return offsetof(struct sdm_map_record, id);
    case MAP_RECORD_TIME: return offsetof(struct sdm_map_record, time);
  }
  return (size_t)-1;
}

unsigned long long map_value(enum map_constant constant) {
  switch (constant) {
    case MAP_MAGIC_NUMBER: return SDM_MAP_MAGIC;
    case MAP_VERSION_NUMBER: return SDM_MAP_VERSION;
    case MAP_BYTES_OF_HEADER: return sizeof(struct sdm_map_header);
    case MAP_BYTES_OF_RECORD: return sizeof(struct sdm_map_record);
    case MAP_LIVE: return SDM_MAP_LIVE;
    case MAP_REPLACED: return SDM_MAP_REPLACED;
    case MAP_ENDED: return SDM_MAP_ENDED;
  }
  return 0;
}
