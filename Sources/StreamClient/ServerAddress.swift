import StreamRuntime

/// Where a server listens.
enum ServerAddress {
  case unix(String)
  case tcp(InternetAddress)

  /// - Parameter text: the path of a Unix socket, or an address of TCP; `localhost:` is `127.0.0.1:`. As for other
  ///   clients, `unix:` and `tcp:` may precede.
  init(_ text: String) {
    if text.hasPrefix("unix:") {
      self = .unix(String(text.dropFirst("unix:".count)))
      return
    }
    var numeric = text[...]
    if numeric.hasPrefix("tcp:") { numeric = numeric.dropFirst("tcp:".count) }
    if numeric.hasPrefix("localhost:") { numeric = "127.0.0.1:" + numeric.dropFirst("localhost:".count) }
    self = InternetAddress(String(numeric)).map { .tcp($0) } ?? .unix(text)
  }

  /// The address for messages.
  var text: String {
    switch self {
    case .unix(let path): path
    case .tcp(let address): address.description
    }
  }

  func connect() throws(SystemError) -> OwnedDescriptor {
    switch self {
    case .unix(let path): try UnixSocket.connect(to: path)
    case .tcp(let address): try TCPSocket.connect(to: address)
    }
  }
}
