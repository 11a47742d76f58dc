import Events
import Reactive
import ReplayLog
import StreamRuntime
import StreamSources

extension Configuration {
  /// A source that receives the lines or messages of a socket.
  struct Socket: Sendable, Equatable {
    var address = Address.unix("")
    /// Whether a TCP connection is encrypted, with the trust of `settings`.
    var tls = false
    /// Whether a TCP connection is telnet's.
    var isTelnet = false
    var settings = HTTPSettings()
    /// The name in the server's certificate; `nil`: that of the address.
    var serverName: String?
    /// Texts that are sent after each opening, in order; each of at most 64 KiB, and not empty.
    var messages: [NamedValue.Value] = []
    /// `nil`: messages for datagrams, otherwise lines.
    var split: Split?
    /// Maximum bytes of an event; longer ones are dropped. `nil`: 1 MiB.
    var maxBodyBytes: Int?
    /// How lines end; as in the file. `nil`: with LF or CRLF.
    var end: String?
    /// `nil`: no limit.
    var idleTimeout: Duration?

    enum Address: Sendable, Equatable {
      /// A name or an address, without brackets.
      case tcp(host: String, port: UInt16)
      /// An absolute path of at most 107 bytes.
      case unix(String)
      case udp(InternetAddress)
    }

    /// What an event is.
    enum Split: String, CaseIterable, Sendable {
      case lines
      /// A message of the socket.
      case none
      /// A JSON text in a message of a socket with messages, or in a line of another.
      case json
    }

    /// Whether an event is a line, or in one.
    var hasLines: Bool {
      if let split, split != .json { return split == .lines }
      if case .udp = address { return false }
      return true
    }
  }

  /// A source that receives the lines of a serial port.
  struct Serial: Sendable, Equatable {
    var settings = SerialSettings(device: "")
    /// As for a socket.
    var messages: [NamedValue.Value] = []
    /// As for a socket.
    var end: String?
    /// Maximum bytes of a line; longer ones are dropped. `nil`: 1 MiB.
    var maxBodyBytes: Int?
  }
}

extension Configuration.Socket: SourceTable {
  static let name = "socket"
  static let example = #"{ address = "tcp:HOST:PORT" }"#

  static let keys: [ConfigurationKey<Self>] = [
    .init(required: "address", suchAs: "address = \"tcp:localhost:2947\"", \.address, .socketAddress),
    .init("tls", \.tls, .flag),
    .init("telnet", \.isTelnet, .flag),
    .init([], \.settings) { table, settings in settings = table.context.standardSettings },
    .part(\.settings, Configuration.HTTPSettings.trustKeys),
    .init("server_name", \.serverName, .hostName),
    .init(["send"], \.messages) { $1 = $0.messages() ?? $1 },
    .init(["split"], \.split) { $1 = $0.value("split", .choice) ?? $1 },
    .init("end", \.end, .lineEnd),
    .init(["max_body"], \.maxBodyBytes) { $1 = $0.value("max_body", .size(1...1 << 30)) ?? $1 },
    .init("idle_timeout", \.idleTimeout, .duration()),
    .check { $1.check($0) },
  ]

  private func check(_ table: ConfigurationTable) {
    guard table.isComplete else { return }
    if case .tcp = address {
      if split == Split.none {
        table.addError("expected lines: a TCP connection has no messages", at: "split")
      }
    } else {
      for (key, isSet) in [("tls", tls), ("telnet", isTelnet)] where isSet {
        table.addError("expected \(key) only with an address of tcp", at: key)
      }
    }
    if !tls {
      table.refuse(["ca_file", "client_certificate", "server_name"], onlyWith: "tls = true", lacking: ["tls"])
    }
    if !hasLines { table.refuse(["end"], onlyWith: "lines", lacking: ["split"]) }
    if !hasLines, let bytes = maxBodyBytes, bytes > LineConfiguration.maximumMessageBytes {
      table.expected("at most 1MiB for a message", at: "max_body")
    }
    guard case .udp(let address) = address else { return }
    if address.needsInterface {
      table.addError("expected no address of one link (ff02:… or fe80:…), which would need an interface", at: "address")
    }
    for key in ["send", "idle_timeout"] where table.holds(key) {
      table.addError("expected no \(key) with an address of udp, which only receives", at: key)
    }
  }
}

extension Configuration.Serial: SourceTable {
  static let name = "serial"
  static let example = #"{ device = "/dev/ttyUSB0", baud = 9600 }"#

  static let keys: [ConfigurationKey<Self>] = [
    .init(required: "device", suchAs: "device = \"/dev/ttyUSB0\"", \.settings.device, .path(upTo: 4095)),
    .init("baud", \.settings.baud, .count(1...Int.max)),
    .check { table, serial in
      if !table.isFaulty("baud"), !SerialSettings.rates.contains(serial.settings.baud) {
        table.expected("a rate of serial ports such as 9600 or 115200", at: "baud")
      }
    },
    .init("data_bits", \.settings.dataBits, .count(5...8)),
    .init("parity", \.settings.parity, .choice),
    .init("stop_bits", \.settings.stopBits, .count(1...2)),
    .init("flow", \.settings.flow, .choice),
    .init("end", \.end, .lineEnd),
    .init(["send"], \.messages) { $1 = $0.messages() ?? $1 },
    .init(["max_body"], \.maxBodyBytes) { $1 = $0.value("max_body", .size(1...1 << 30)) ?? $1 },
  ]
}

extension Configuration.Socket {
  var definition: [DefinitionField] {
    var fields: [DefinitionField] = [("socket.address", address.text)]
    fields += messages.flatMap { $0.definition("socket.send") }
    if let end { fields.append(("socket.end", end)) }
    if let split { fields.append(("socket.split", split.rawValue)) }
    if let maxBodyBytes, maxBodyBytes != 1 << 20 { fields.append(("socket.max_body", "\(maxBodyBytes)")) }
    return fields
  }

  var descriptorCount: Int { 6 }
  var splitsTexts: Bool { split == .json }
  var eventLimit: (key: String, bytes: Int)? { maxBodyBytes.map { ("socket.max_body", $0) } }
  func limits(in stream: Configuration.Stream) -> [Int] { [stream.maxLineBytes(maxBodyBytes)] }

  var exclusivePlace: (place: String, key: String)? {
    guard case .udp(let udp) = address, !udp.isMulticast else { return nil }
    // `::` includes IPv4.
    return (address.text.replacing("udp:[::]:", with: "udp:0.0.0.0:"), "address")
  }

  func sharingErrors(of stream: Configuration.Stream) -> [(text: String, key: String)] {
    if case .tcp = address { [] } else { localError("an address of unix or udp") }
  }

  func publisher(of stream: Configuration.Stream, in context: SectionContext) -> AnyPublisher<EventBatch, Never> {
    let place: LinePlace =
      switch address {
      case .tcp(let host, let port):
        .tcp(host: host, port: port, tls: tls ? settings.trust(serverName: serverName) : nil)
      case .unix(let path): .unix(path)
      case .udp(let address): .udp(address)
      }
    var lines = LineConfiguration(place, messages, end, maxBodyBytes, in: stream)
    (lines.hasLines, lines.isTelnet, lines.idleTimeout) = (hasLines, isTelnet, idleTimeout)
    return Source(LineSource(lines), in: context.source).eraseToAnyPublisher()
  }
}

extension Configuration.Serial {
  var definition: [DefinitionField] { [("serial.device", settings.device)] + (end.map { [("serial.end", $0)] } ?? []) }
  var descriptorCount: Int { 1 }
  var eventLimit: (key: String, bytes: Int)? { maxBodyBytes.map { ("serial.max_body", $0) } }
  func limits(in stream: Configuration.Stream) -> [Int] { [stream.maxLineBytes(maxBodyBytes)] }
  var exclusivePlace: (place: String, key: String)? { (settings.device, "device") }
  func sharingErrors(of stream: Configuration.Stream) -> [(text: String, key: String)] { localError("serial") }

  func publisher(of stream: Configuration.Stream, in context: SectionContext) -> AnyPublisher<EventBatch, Never> {
    let lines = LineConfiguration(.serial(settings), messages, end, maxBodyBytes, in: stream)
    return Source(LineSource(lines), in: context.source).eraseToAnyPublisher()
  }
}

extension LineConfiguration {
  fileprivate init(
    _ place: LinePlace, _ messages: [Configuration.NamedValue.Value], _ end: String?, _ limit: Int?,
    in stream: Configuration.Stream
  ) {
    self.init(place)
    (self.messages, lineEnd, retry) = (messages.map(\.content), LineEnd(of: end), stream.retry)
    maximumEventBytes = stream.maxLineBytes(limit)
  }
}

extension Configuration.Stream {
  /// - Parameter limit: the configured one; nil: 1 MiB, or what the buffer can hold.
  fileprivate func maxLineBytes(_ limit: Int?) -> Int {
    limit ?? min(1 << 20, jq == nil ? EventLog.Limits(buffer).maximumEventBytes : .max)
  }
}

extension ConfigurationTable {
  /// The texts that are sent after an opening.
  func messages() -> [Configuration.NamedValue.Value]? {
    texts("send", .sentMessage, text: { .plain($0) }) { $0.credential(allowsLines: true).map { .secret($0) } }
  }
}

extension ConfigurationShape where Value == String {
  static var message: Self {
    text("a text of 1 to 65536 bytes") { (1...65536).contains($0.utf8.count) }
  }

  static var sentMessage: Self { message.expanding(.json) }
}

extension ConfigurationShape where Value == String {
  /// How lines end.
  static var lineEnd: Self {
    text("\"cr\", \"lf\", \"crlf\", or one character up to U+00FF for that byte") { LineEnd($0) != nil }
  }
}

extension LineEnd {
  /// - Parameter text: as in the file.
  init(of text: String?) { self = text.flatMap { LineEnd($0) } ?? .automatic }
}

extension ConfigurationShape where Value == Configuration.Socket.Address {
  /// `udp:ADDRESS:PORT`, or as a `ServerAddress`: `tcp:HOST:PORT`, `unix:PATH`.
  fileprivate static var socketAddress: Self {
    Self { node throws(Expected) in
      guard case .string(let text) = node.value, let address = Configuration.Socket.Address(text) else {
        throw Expected("an address such as \"tcp:localhost:2947\", \"unix:/run/x.sock\" or \"udp:0.0.0.0:5000\"")
      }
      return address
    }
  }
}

extension Configuration.Socket.Address {
  /// - Parameter text: as in the file.
  init?(_ text: String) {
    if text.hasPrefix("udp:") {
      guard let address = InternetAddress(String(text.dropFirst("udp:".utf8.count))) else { return nil }
      self = .udp(address)
      return
    }
    switch ServerAddress(text) {
    case .unix(let path): self = .unix(path)
    case .tcp(let host, let port): self = .tcp(host: host, port: port)
    case nil: return nil
    }
  }

  /// The text of `init(_:)`.
  var text: String {
    switch self {
    case .tcp(let host, let port): "tcp:\(host.contains(":") ? "[\(host)]" : host):\(port)"
    case .unix(let path): "unix:\(path)"
    case .udp(let address): "udp:\(address)"
    }
  }
}
