import StreamRuntime

/// Where a server listens.
enum ServerAddress {
  case unix(String)
  case tcp(InternetAddress)

  /// - Parameter text: the path of a Unix socket, or an address of TCP; `localhost:` is `127.0.0.1:`.
  init(_ text: String) {
    let numeric = text.hasPrefix("localhost:") ? "127.0.0.1:" + text.dropFirst("localhost:".count) : text
    self = InternetAddress(numeric).map { .tcp($0) } ?? .unix(text)
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
