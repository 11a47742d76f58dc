#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-bus.h>

// The properties of org.freedesktop.LogControl1: a table that only the macros of sd-bus can write. The functions in
// this structure read and set the values.
struct log_control {
  void *context;
  const char *target;
  const char *identifier;
  int is_named;  // the bus has given the name to this connection
  int (*append_level)(void *context, sd_bus_message *reply);
  int (*take_level)(void *context, sd_bus_message *value, sd_bus_error *error);
};

static inline int log_control_get_level(
    sd_bus *bus, const char *path, const char *interface, const char *property, sd_bus_message *reply, void *userdata,
    sd_bus_error *error) {
  struct log_control *control = userdata;
  return control->append_level(control->context, reply);
}

static inline int log_control_set_level(
    sd_bus *bus, const char *path, const char *interface, const char *property, sd_bus_message *value, void *userdata,
    sd_bus_error *error) {
  struct log_control *control = userdata;
  return control->take_level(control->context, value, error);
}

// `control` outlives the bus. Unprivileged: the bus's policy decides which client may call, because checking it here
// would block on a reply of the bus.
static inline int log_control_add(sd_bus *bus, struct log_control *control) {
  static const sd_bus_vtable table[] = {
      SD_BUS_VTABLE_START(0),
      SD_BUS_WRITABLE_PROPERTY(
          "LogLevel", "s", log_control_get_level, log_control_set_level, 0, SD_BUS_VTABLE_UNPRIVILEGED),
      SD_BUS_PROPERTY("LogTarget", "s", NULL, offsetof(struct log_control, target), SD_BUS_VTABLE_PROPERTY_CONST),
      SD_BUS_PROPERTY(
          "SyslogIdentifier", "s", NULL, offsetof(struct log_control, identifier), SD_BUS_VTABLE_PROPERTY_CONST),
      SD_BUS_VTABLE_END,
  };
  return sd_bus_add_object_vtable(
      bus, NULL, "/org/freedesktop/LogControl1", "org.freedesktop.LogControl1", table, control);
}

// The reply to the request for the name. Without the name the connection is useless, and closes.
static inline int log_control_named(sd_bus_message *reply, void *userdata, sd_bus_error *error) {
  struct log_control *control = userdata;
  uint32_t result = 0;
  control->is_named = !sd_bus_message_is_method_error(reply, NULL) && sd_bus_message_read(reply, "u", &result) > 0 &&
                      (result == 1 || result == 4);  // the primary owner, now or before
  if (!control->is_named) sd_bus_close(sd_bus_message_get_bus(reply));
  return 1;
}

static inline int log_control_request_name(sd_bus *bus, struct log_control *control, const char *name) {
  return sd_bus_request_name_async(bus, NULL, name, 0, log_control_named, control);
}
