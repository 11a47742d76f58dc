#include <stddef.h>
#include <systemd/sd-bus.h>

// The properties of org.freedesktop.LogControl1: a table that only the macros of sd-bus can write. The functions in
// this structure read and set the values.
struct log_control {
  void *context;
  const char *target;
  const char *identifier;
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
