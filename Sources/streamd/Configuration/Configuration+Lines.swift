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

extension Configuration.Socket: ConfigurationSection {
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

extension Configuration.Serial: ConfigurationSection {
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

extension [Configuration.Stream] {
  /// The errors in places that only one stream can have, in the order of the streams, each with its key.
  var placeErrors: [(stream: String, keys: [String], text: String)] {
    var owners: [String: String] = [:]
    return compactMap { stream in
      let (place, keys): (String, [String])
      switch stream.source {
      case .serial(let serial): (place, keys) = (serial.settings.device, ["serial", "device"])
      case .socket(let socket):
        guard case .udp(let address) = socket.address, !address.isMulticast else { return nil }
        // `::` includes IPv4.
        (place, keys) = (socket.address.text.replacing("udp:[::]:", with: "udp:0.0.0.0:"), ["socket", "address"])
      default: return nil
      }
      guard let owner = owners.updateValue(stream.name, forKey: place) else { return nil }
      return (
        stream.name, keys, "expected another one than that of \(ConfigurationNode.shown(owner)): one stream can have it"
      )
    }
  }
}

extension ConfigurationTable {
  /// The texts that are sent after an opening.
  func messages() -> [Configuration.NamedValue.Value]? {
    texts("send", .message, text: { .plain($0) }) { $0.credential(allowsLines: true).map { .secret($0) } }
  }
}

extension ConfigurationShape where Value == String {
  static var message: Self {
    text("a text of 1 to 65536 bytes") { (1...65536).contains($0.utf8.count) }
  }
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
