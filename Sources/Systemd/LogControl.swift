import CSystemd
import Glibc

/// Implements `systemctl service-log-level`, which reads and sets the journal's level at run time:
/// `org.freedesktop.LogControl1`, on the bus of the manager that runs this process, the system's or a user's.
///
/// Never blocks on the bus. Confined to one thread, which calls ``process()`` at the start, whenever ``descriptor`` is
/// ready as ``isReadWanted`` and ``isWriteWanted`` demand, and at ``deadline``.
@safe public final class LogControl {
  /// The unit's BusName=, under which `systemctl` finds the interface.
  public static let busName = "org.streamd"

  /// The names of the levels in this interface, most urgent first: those of syslog.conf(5).
  static let levelNames = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"]

  private let bus: OpaquePointer
  private let control: UnsafeMutablePointer<log_control>
  private let texts: [UnsafeMutablePointer<CChar>?]

  /// Starts connecting.
  ///
  /// - Returns: nil if there is no bus.
  public init?(_ journal: Journal) {
    var opened: OpaquePointer?
    guard unsafe sd_bus_open(&opened) >= 0, let bus = unsafe opened else { return nil }
    unsafe self.bus = bus
    unsafe texts = [strdup(journal.isNative ? "journal" : "console"), strdup("streamd")]
    unsafe control = .allocate(capacity: 1)
    unsafe control.initialize(
      to: log_control(
        context: Unmanaged.passRetained(journal).toOpaque(), target: texts[0], identifier: texts[1], is_named: 0,
        append_level: { context, reply in unsafe Journal.at(context).appendLevel(to: reply) },
        take_level: { context, value, error in unsafe Journal.at(context).takeLevel(from: value, error) }))
    // A client that may not own the name, because its policy is not installed, is disconnected.
    guard unsafe log_control_add(bus, control) >= 0,
      unsafe log_control_request_name(bus, control, Self.busName) >= 0
    else { return nil }
  }

  deinit {
    unsafe sd_bus_close_unref(bus)
    unsafe Unmanaged<Journal>.fromOpaque(control.pointee.context).release()
    unsafe control.deallocate()
    unsafe texts.forEach { unsafe free($0) }
  }

  /// Whether `systemctl` can reach the interface: the connection has the name.
  public var isServed: Bool { unsafe control.pointee.is_named != 0 }

  /// Owned by this value; negative after the bus has closed.
  public var descriptor: CInt { unsafe sd_bus_get_fd(bus) }
  /// Whether to watch for input.
  public var isReadWanted: Bool { unsafe sd_bus_get_events(bus) & POLLIN != 0 }
  /// Whether to watch for room to write.
  public var isWriteWanted: Bool { unsafe sd_bus_get_events(bus) & POLLOUT != 0 }

  /// When to call ``process()`` even if nothing is ready: microseconds of CLOCK_MONOTONIC.
  public var deadline: UInt64? {
    var microseconds: UInt64 = 0
    guard unsafe sd_bus_get_timeout(bus, &microseconds) >= 0, microseconds != .max else { return nil }
    return microseconds
  }

  /// Handles the pending requests.
  ///
  /// - Returns: false after the bus has closed.
  public func process() -> Bool {
    while true {
      let result = unsafe sd_bus_process(bus, nil)
      if result <= 0 { return result == 0 }
    }
  }
}

extension Journal {
  /// - Parameter context: the pointer that ``LogControl`` passes to C.
  fileprivate static func at(_ context: UnsafeMutableRawPointer?) -> Journal {
    guard let context = unsafe context else { preconditionFailure("a callback without context") }
    return unsafe Unmanaged<Journal>.fromOpaque(context).takeUnretainedValue()
  }

  fileprivate func appendLevel(to reply: OpaquePointer?) -> CInt {
    unsafe LogControl.levelNames[Int(level.rawValue)].withCString {
      unsafe sd_bus_message_append_basic(reply, CChar(UInt8(ascii: "s")), $0)
    }
  }

  fileprivate func takeLevel(from value: OpaquePointer?, _ error: UnsafeMutablePointer<sd_bus_error>?) -> CInt {
    var text: UnsafePointer<CChar>?
    let result = unsafe sd_bus_message_read_basic(value, CChar(UInt8(ascii: "s")), &text)
    guard result >= 0, let text = unsafe text else { return result }
    guard let level = unsafe Priority(logControlName: String(cString: text)) else {
      return unsafe sd_bus_error_set(
        error, "org.freedesktop.DBus.Error.InvalidArgs",
        "expected one of \(LogControl.levelNames.joined(separator: ", "))")
    }
    let previous = self.level
    // Written at the more verbose of the two levels, so that the entry appears.
    self.level = max(previous, level)
    write(.logLevelChanged, .notice, "log level is now \(level), was \(previous)")
    self.level = level
    return 0
  }
}

extension Journal.Priority {
  /// A name in ``LogControl/levelNames``, or its number, which `systemctl` accepts, too.
  init?(logControlName name: String) {
    guard let value = LogControl.levelNames.firstIndex(of: name) ?? Int(name), (0...7).contains(value) else {
      return nil
    }
    self.init(rawValue: UInt8(value))
  }
}
