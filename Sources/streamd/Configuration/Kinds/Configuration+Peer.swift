import Events
import Reactive
import StreamProtocol
import StreamRuntime
import StreamSources

extension Configuration {
  /// A source that subscribes to a stream of another streamd.
  struct Peer: Sendable, Equatable {
    /// Its initial value, before the key is read, is no address.
    var address = ServerAddress.unix("/")
    /// `nil`: the name of this stream.
    var stream: String?
    /// The filter of the events there; `nil`: all pass.
    var filter: EventFilter?
    /// Only with an address of TCP.
    var token: Secret?
    /// Maximum bytes of one event; more is a failure. `nil`: 8 MiB.
    var maxEventBytes: Int?
  }
}

extension Configuration.Peer: SourceTable {
  static let name = "streamd"
  static let example = #"{ address = "unix:PATH" }"#

  static let keys: [ConfigurationKey<Self>] = [
    .init(required: "address", suchAs: "address = \"unix:/run/other/streamd.sock\"", \.address, .peerAddress),
    .init("stream", \.stream, .streamName),
    .check { $1.checkAddress($0) },
    .init(["where"], \.filter) { table, filter in filter = table.filter("where") ?? filter },
    .init(["token"], \.token) { table, token in token = table.secret("token") ?? token },
    .check { table, peer in
      if case .unix = peer.address, table.isComplete {
        table.refuse(["token"], onlyWith: "an address of tcp: on a Unix socket the user is known")
      }
    },
    .init("max_body", \.maxEventBytes, .size(1...1 << 30)),
  ]

  /// Refuses a stream that would subscribe to itself.
  private func checkAddress(_ table: ConfigurationTable) {
    let own = table.place.dropLast().last
    guard (stream ?? own) == own, let key = Self.key(of: address, in: table.context.server) else { return }
    table.addError(
      "expected the address of another streamd, got \"\(address)\", which is this one's own (\(key)): the stream would "
        + "subscribe to itself", at: "address")
  }

  /// The key of `[server]` that has the address; `nil`: none has it.
  private static func key(of address: ServerAddress, in server: Configuration.Server) -> String? {
    switch address {
    case .unix(let path): return path == server.socket ? "server.socket" : nil
    case .tcp(let host, let port):
      let hosts = host == "localhost" ? ["127.0.0.1:\(port)", "[::1]:\(port)"].compactMap { InternetAddress($0) } : []
      let isOwn = (address.numeric.map { [$0] } ?? hosts).contains { numeric in
        server.listen.contains { own in
          let isAny = own.host == (numeric.isIPv6 ? "::" : "0.0.0.0") && numeric.isLoopback
          return own.port == numeric.port && (own.host == numeric.host || isAny)
        }
      }
      return isOwn ? "server.listen" : nil
    }
  }
}

extension Configuration.Peer {
  var definition: [DefinitionField] {
    var fields: [DefinitionField] = [("streamd.address", "\(address)")]
    if let stream { fields.append(("streamd.stream", stream)) }
    if let filter { fields.append(("streamd.where", String(decoding: filter.json, as: UTF8.self))) }
    if let token { fields.append(("streamd.token", token.name)) }
    if let maxEventBytes, maxEventBytes != 8 << 20 { fields.append(("streamd.max_body", "\(maxEventBytes)")) }
    return fields
  }

  var descriptorCount: Int { 3 }
  var countsMissed: Bool { true }
  var eventLimit: (key: String, bytes: Int)? { maxEventBytes.map { ("streamd.max_body", $0) } }

  func sharingErrors(of stream: Configuration.Stream) -> [(text: String, key: String)] {
    let text =
      "expected no share = \"fleet\" with streamd: the fleet has no record of events that the other streamd has lost; "
      + "share the stream there, or let each host subscribe to it"
    return [(text, "share")]
  }

  func publisher(of stream: Configuration.Stream, in context: SectionContext) -> AnyPublisher<EventBatch, Never> {
    Source(PeerSource(PeerConfiguration(self, of: stream)), in: context.source).eraseToAnyPublisher()
  }
}

extension PeerConfiguration {
  init(_ peer: Configuration.Peer, of stream: Configuration.Stream) {
    self.init(address: peer.address, stream: peer.stream ?? stream.name)
    (filter, token) = (peer.filter, peer.token?.content)
    maximumEventBytes = peer.maxEventBytes ?? maximumEventBytes
    // As for derived streams: a batch that fits into the log is stored as a whole, with its position.
    batchLimit.events = min(batchLimit.events, max(1, stream.buffer.events / 4))
    batchLimit.bytes = min(batchLimit.bytes, stream.buffer.bytes / 4)
    retry = stream.retry
  }
}

extension ConfigurationShape where Value == ServerAddress {
  fileprivate static var peerAddress: Self {
    Self { node throws(Expected) in
      guard case .string(let text) = node.value, let address = ServerAddress(text) else {
        throw Expected("an address such as \"unix:/run/other/streamd.sock\" or \"tcp:streamd.example.org:7878\"")
      }
      return address
    }
  }
}

extension ConfigurationShape where Value == String {
  fileprivate static var streamName: Self {
    text("the name of a stream") { $0.isName(upTo: 255, with: "._-/$") }
  }
}
