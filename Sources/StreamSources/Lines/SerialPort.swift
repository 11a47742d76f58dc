import CLinux
import Glibc
import StreamRuntime

/// An open serial port: raw, and for this process alone. Its former settings return when it is closed.
final class SerialPort: DescriptorPort {
  private var former: termios

  /// Source: termios(3).
  static let speeds: [(rate: Int, code: speed_t)] = [
    (50, speed_t(B50)), (75, speed_t(B75)), (110, speed_t(B110)), (134, speed_t(B134)), (150, speed_t(B150)),
    (200, speed_t(B200)), (300, speed_t(B300)), (600, speed_t(B600)), (1200, speed_t(B1200)), (1800, speed_t(B1800)),
    (2400, speed_t(B2400)), (4800, speed_t(B4800)), (9600, speed_t(B9600)), (19200, speed_t(B19200)),
    (38400, speed_t(B38400)), (57600, speed_t(B57600)), (115_200, speed_t(B115200)), (230_400, speed_t(B230400)),
    (460_800, speed_t(B460800)), (500_000, speed_t(B500000)), (576_000, speed_t(B576000)),
    (921_600, speed_t(B921600)), (1_000_000, speed_t(B1000000)), (1_152_000, speed_t(B1152000)),
    (1_500_000, speed_t(B1500000)), (2_000_000, speed_t(B2000000)), (2_500_000, speed_t(B2500000)),
    (3_000_000, speed_t(B3000000)), (3_500_000, speed_t(B3500000)), (4_000_000, speed_t(B4000000)),
  ]

  /// - Throws: when the device cannot be opened, another program has it, or it does not accept the settings.
  init(_ settings: SerialSettings) throws(SourceFailure) {
    let path = settings.device
    // Without O_NONBLOCK, opening waits for the modem's line DCD.
    let raw = unsafe open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)
    guard raw >= 0 else { throw Self.cannotOpen(path, errno) }
    let device = OwnedDescriptor(raw)
    former = termios()
    guard unsafe tcgetattr(raw, &former) == 0 else { throw SourceFailure("\(path) is not a serial port") }
    // The lock is for processes with privileges, which TIOCEXCL does not stop.
    guard flock(raw, LOCK_EX | LOCK_NB) == 0, claim_terminal(raw) == 0 else {
      throw SourceFailure("\(path) is in use by another stream or program")
    }
    var new = former
    let isAccepted = unsafe Self.apply(settings, to: &new) && tcsetattr(raw, TCSANOW, &new) == 0
    var actual = termios()
    guard isAccepted, unsafe tcgetattr(raw, &actual) == 0, unsafe cfgetispeed(&actual) == cfgetispeed(&new),
      actual.c_cflag == new.c_cflag
    else {
      Self.giveBack(raw, &former)
      throw SourceFailure("\(path) does not support the settings (baud, data_bits, parity, stop_bits, flow)")
    }
    tcflush(raw, TCIFLUSH)  // what came with other settings
    super.init(device, name: path)
  }

  deinit {
    tcflush(descriptor, TCOFLUSH)  // closing would wait for a peer that does not take it
    Self.giveBack(descriptor, &former)
  }

  private static func giveBack(_ device: CInt, _ settings: inout termios) {
    unsafe tcsetattr(device, TCSANOW, &settings)
    release_terminal(device)
  }

  private static func apply(_ settings: SerialSettings, to terminal: inout termios) -> Bool {
    unsafe cfmakeraw(&terminal)
    let sizes = [5: CS5, 6: CS6, 7: CS7, 8: CS8]
    guard let size = sizes[settings.dataBits], let speed = speeds.first(where: { $0.rate == settings.baud })?.code,
      unsafe cfsetspeed(&terminal, speed) == 0
    else { return false }
    var flags = terminal.c_cflag & ~tcflag_t(CSIZE | CSTOPB | PARENB | PARODD) & ~hardwareFlow
    flags |= tcflag_t(size | CREAD | CLOCAL)
    if settings.stopBits == 2 { flags |= tcflag_t(CSTOPB) }
    switch settings.parity {
    case .none: break
    case .even: flags |= tcflag_t(PARENB)
    case .odd: flags |= tcflag_t(PARENB | PARODD)
    }
    // Without IGNPAR a byte that has a wrong parity becomes NUL, as one without a stop bit does: a number without one of its
    // digits would be another number.
    if settings.parity != .none { terminal.c_iflag |= tcflag_t(INPCK) }
    switch settings.flow {
    case .none: break
    case .hardware: flags |= hardwareFlow
    case .software: terminal.c_iflag |= tcflag_t(IXON | IXOFF)
    }
    terminal.c_cflag = flags
    return true
  }

  /// CRTSCTS.
  private static let hardwareFlow: tcflag_t = 0o20_000_000_000

  override func read(into room: UnsafeMutableRawBufferPointer) throws(SourceFailure) -> LinePortInput {
    let input = try unsafe super.read(into: room)
    guard input == .end else { return input }
    throw SourceFailure("\(name) was unplugged")
  }

  override func failure(_ code: CInt) -> SourceFailure {
    unsafe SourceFailure("\(name) has failed, or was unplugged: \(String(cString: strerror(code)))")
  }

  private static func cannotOpen(_ path: String, _ code: CInt) -> SourceFailure {
    let hint =
      switch code {
      case EACCES: Sandbox.hint("SupplementaryGroups=dialout", in: "serial.conf")
      case EPERM, ENOENT: Sandbox.hint("PrivateDevices=no and DeviceAllow=", in: "serial.conf")
      default: ""
      }
    return unsafe SourceFailure("could not open \(path): \(String(cString: strerror(code)))\(hint)")
  }
}
