import CSystemd
import Glibc
import StreamRuntime

extension ServiceManager {
  /// The service manager's job for this service, besides stopping it.
  public enum Ending: Sendable, Equatable {
    /// Stops it permanently, and releases the stored descriptors.
    case stop
    /// Starts it again, and passes the stored descriptors.
    case restart
  }

  /// Asks the manager over D-Bus for the current job. For the handling of SIGTERM. Waits at most a second in total for
  /// the connection and all replies.
  ///
  /// - Returns: nil without a reply: no manager, no bus, a bus that hangs, or no permission.
  public func ending() -> Ending? {
    // The unit passes its own name (STREAMD_UNIT=%n): other methods read the control groups, which the sandbox and
    // containers may hide.
    guard isPresent, let unit = unsafe getenv("STREAMD_UNIT").map({ unsafe String(cString: $0) }),
      let bus = Bus(of: unit, until: .now + .seconds(1))
    else { return nil }
    switch bus.jobType() {
    case "restart", "try-restart", "start": return .restart
    case "stop": return .stop
    default: return nil
    }
  }

  /// How a unit of the system protects home directories: its ProtectHome=, such as `yes`. Waits at most a second.
  ///
  /// - Returns: nil without a reply: no manager, or no bus.
  public static func homeProtection(of unit: String) -> String? {
    Bus(of: unit, isSystem: true, until: .now + .seconds(1))?.text(of: "ProtectHome", ofInterface: ".Service")
  }
}

/// A connection to the bus of a service manager, for the properties of a unit.
@safe private final class Bus {
  private let bus: OpaquePointer
  private let unitPath: String
  private let deadline: ContinuousClock.Instant

  private static let manager = "org.freedesktop.systemd1"

  /// Connects to the bus.
  ///
  /// - Parameter isSystem: false: the bus of the manager that runs this process, the system's or the user's.
  init?(of unit: String, isSystem: Bool = false, until deadline: ContinuousClock.Instant) {
    var opened: OpaquePointer?
    var path: UnsafeMutablePointer<CChar>?
    guard unsafe sd_bus_path_encode("/org/freedesktop/systemd1/unit", unit, &path) >= 0, let path = unsafe path
    else { return nil }
    defer { unsafe free(path) }
    let result = unsafe isSystem ? sd_bus_open_system(&opened) : sd_bus_open(&opened)
    guard result >= 0, let opened = unsafe opened else { return nil }
    unsafe bus = opened
    unitPath = unsafe String(cString: path)
    self.deadline = deadline
    // A call on a connection that is not yet authenticated would block until it is.
    while unsafe sd_bus_is_ready(bus) == 0 {
      let result = unsafe sd_bus_process(bus, nil)
      guard result >= 0 else { return nil }
      guard result == 0 else { continue }
      guard case let left = microsecondsLeft, left > 0, unsafe sd_bus_wait(bus, left) >= 0 else { return nil }
    }
    guard unsafe sd_bus_is_ready(bus) > 0 else { return nil }
  }

  deinit { unsafe sd_bus_close_unref(bus) }

  private var microsecondsLeft: UInt64 { UInt64(max(0, (deadline - .now).wholeMicroseconds)) }

  /// Limits the next call to the remaining time.
  ///
  /// - Returns: false when no time is left.
  private func limitCall() -> Bool {
    let left = microsecondsLeft  // 0 would mean the library's default, 25 s
    return unsafe left > 0 && sd_bus_set_method_call_timeout(bus, left) >= 0
  }

  /// The job's type as in `systemctl list-jobs`; nil when there is none.
  func jobType() -> String? {
    var reply: OpaquePointer?
    guard limitCall(),
      unsafe sd_bus_get_property(bus, Self.manager, unitPath, Self.manager + ".Unit", "Job", nil, &reply, "(uo)") >= 0
    else { return nil }
    defer { unsafe sd_bus_message_unref(reply) }
    var number: UInt32 = 0
    var path: UnsafePointer<CChar>?
    guard unsafe sd_bus_message_enter_container(reply, CChar(UInt8(ascii: "r")), "uo") > 0,
      unsafe sd_bus_message_read_basic(reply, CChar(UInt8(ascii: "u")), &number) > 0,
      unsafe sd_bus_message_read_basic(reply, CChar(UInt8(ascii: "o")), &path) > 0, number > 0, let path = unsafe path
    else { return nil }
    return unsafe text(of: "JobType", ofInterface: ".Job", at: String(cString: path))
  }

  /// A property that is a string.
  ///
  /// - Parameters:
  ///   - interface: the end of its name.
  ///   - path: nil: the unit's.
  func text(of property: String, ofInterface interface: String, at path: String? = nil) -> String? {
    var text: UnsafeMutablePointer<CChar>?
    defer { unsafe free(text) }
    guard limitCall(),
      unsafe sd_bus_get_property_string(
        bus, Self.manager, path ?? unitPath, Self.manager + interface, property, nil, &text) >= 0
    else { return nil }
    return unsafe text.map { unsafe String(cString: $0) }
  }
}
