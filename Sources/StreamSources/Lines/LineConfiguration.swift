import StreamRuntime

/// Where lines or messages come from, and the limits.
public struct LineConfiguration: Sendable, Equatable {
  /// The place to connect to, or to open.
  public var place: LinePlace
  /// Texts that are sent after each opening, in order, as they are. May be secrets: never printed. None to `.udp`.
  public var messages: [String] = []
  /// Whether an event is a line. If not, it is a message, and the place must have messages: `.udp`, or `.unix` with a
  /// socket of sequenced packets.
  public var hasLines = true
  /// How lines end, besides the end of the connection.
  public var lineEnd = LineEnd.automatic
  /// Whether the connection is telnet's: its commands are no data, and its options are refused.
  public var isTelnet = false
  /// Maximum bytes of one event, at most `maximumMessageBytes` if it is a message. Longer ones are left out and reported.
  public var maximumEventBytes = 1 << 20
  /// A connection that is being read fails after this time without a byte; nil: no limit.
  public var idleTimeout: Duration?
  /// The delay after failures; its minimum also applies between the end of a connection and the next one.
  public var retry = Backoff()

  /// Maximum bytes of a message of a socket: more than the system's default buffers take.
  public static let maximumMessageBytes = 1 << 20

  /// Everything except the place has a default.
  public init(_ place: LinePlace) { self.place = place }
}

/// A place that lines or messages come from.
public enum LinePlace: Sendable, Equatable {
  /// A server. A host is a name or an address, without brackets.
  /// - tls: nil: the connection is not encrypted.
  case tcp(host: String, port: UInt16, tls: HTTPTrust?)
  /// The path of a Unix socket, of a stream or of sequenced packets; at most 107 bytes.
  case unix(String)
  /// Datagrams that arrive at an address of this machine or of a multicast group.
  case udp(InternetAddress)
  case serial(SerialSettings)
}

/// A serial port, and how bytes are sent over it.
public struct SerialSettings: Sendable, Equatable {
  /// Whether a bit is added to each byte, so that it has an even or an odd number of ones.
  public enum Parity: String, Sendable, CaseIterable { case none, even, odd }

  /// Who may pause the sender.
  public enum Flow: String, Sendable, CaseIterable {
    case none
    /// The lines RTS and CTS.
    case hardware = "rts-cts"
    /// The bytes XON and XOFF, which then cannot be part of an event.
    case software = "xon-xoff"
  }

  /// The path of the device.
  public var device: String
  /// One of `rates`.
  public var baud = 9600
  /// 5 to 8.
  public var dataBits = 8
  /// No parity by default.
  public var parity = Parity.none
  /// 1 or 2.
  public var stopBits = 1
  /// No flow control by default.
  public var flow = Flow.none

  /// The bits per second that Linux names. Source: termios(3).
  public static var rates: [Int] { SerialPort.speeds.map(\.rate) }

  /// Everything except the device has a default.
  public init(device: String) { self.device = device }
}
