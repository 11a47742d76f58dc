import CLinux
import FoundationEssentials
import Glibc
import StreamRuntime

/// The HTTP server of `Server/server.py`, for as long as this value lives.
public final class Upstream: Sendable {
  /// Where it serves.
  private struct Places: Decodable {
    let port: UInt16
    let otherPort: UInt16
    let securePort: UInt16
    let trustedPort: UInt16
    let mutualPort: UInt16
    let proxyPort: UInt16
    let lockedProxyPort: UInt16
    let refusingProxyPort: UInt16
    let unixSocket: String
    let files: [String: String]
    let passphrase: String
  }

  private let process: ChildProcess
  private let places: Places

  /// One for all tests, ended when this process is.
  public static let shared = Result { try Upstream() }

  private init() throws {
    setenv("no_proxy", "*", 1)
    let script = Self.file(besideTheServer: "server.py")
    process = try ChildProcess("python3", [script], holdsInput: true, errors: .descriptor(STDERR_FILENO))
    var line: [UInt8] = []
    var byte: UInt8 = 0
    while read(process.output, &byte, 1) == 1, byte != UInt8(ascii: "\n") { line.append(byte) }
    places = try JSONDecoder().decode(Places.self, from: Data(line))  // fails on nothing: python3 did not start
  }

  /// On plain HTTP.
  public func url(_ path: String) -> String { "http://127.0.0.1:\(places.port)\(path)" }
  /// The same server on another port.
  public func otherURL(_ path: String) -> String { "http://127.0.0.1:\(places.otherPort)\(path)" }
  /// On HTTPS, with an untrusted certificate.
  public func secureURL(_ path: String) -> String { "https://localhost:\(places.securePort)\(path)" }
  /// On HTTPS, with a certificate of `file("authority.pem")`.
  public func trustedURL(_ path: String) -> String { "https://localhost:\(places.trustedPort)\(path)" }
  /// The same, only for clients with a certificate of that authority.
  public func mutualURL(_ path: String) -> String { "https://localhost:\(places.mutualPort)\(path)" }
  /// A proxy.
  public var proxy: String { "http://127.0.0.1:\(places.proxyPort)" }
  /// A proxy for the user `me` with the password `proxy pass`.
  public var lockedProxy: String { "http://127.0.0.1:\(places.lockedProxyPort)" }
  /// A SOCKS 5 proxy that refuses all requests.
  public var refusingProxy: String { "socks5://127.0.0.1:\(places.refusingProxyPort)" }
  /// What `Server/certificates.py` has made: `authority.pem`, `client.pem` and `client.key`, `locked.key` (the same
  /// with `passphrase`), `stranger.pem` and `stranger.key`, which are untrusted.
  public func file(_ name: String) -> String { places.files[name] ?? "/nonexistent/\(name)" }
  /// A file of the folder `Server`.
  public static func file(besideTheServer name: String) -> String {
    String(#filePath.prefix(upTo: #filePath.lastIndex(of: "/") ?? #filePath.startIndex)) + "/Server/" + name
  }
  /// The passphrase of `locked.key`.
  public var passphrase: String { places.passphrase }
  /// Host and port of `url`.
  public var authority: String { "127.0.0.1:\(places.port)" }
  /// Host and port of `secureURL`.
  public var secureAuthority: String { "localhost:\(places.securePort)" }
  /// Where the same server listens besides.
  public var unixSocket: String { places.unixSocket }

  /// A redirect to `target`, as the path of a URL.
  public static func redirect(_ key: String, to target: String, _ more: String = "") -> String {
    "/redirect/\(key)?to=\(escaped(target))\(more)"
  }

  /// The path of a response with these header lines, in ISO 8859-1, and this body.
  public static func raw(_ key: String, _ head: String = "", _ body: [UInt8] = []) -> String {
    func hexadecimal(_ bytes: [UInt8]) -> String {
      bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
    return "/raw/\(key)?head=\(hexadecimal(head.unicodeScalars.map { UInt8($0.value) }))&body=\(hexadecimal(body))"
  }

  /// Any text as a value in a URL's query.
  public static func escaped(_ text: String) -> String {
    let unreserved = Set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789".utf8)
    return text.utf8.map { byte in
      unreserved.contains(byte) ? String(UnicodeScalar(byte)) : "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16)
    }.joined()
  }

  /// How many requests a key has had.
  public func count(_ key: String) throws -> Int {
    let text = try text("/seen/\(key)")
    guard let count = Int(text) else { throw SystemError("count", text, code: EPROTO) }
    return count
  }

  /// The requests to `/scripted/KEY`, each with its method, type, body and path.
  public func asked(_ key: String) throws -> [[String]] {
    try JSONDecoder().decode([[String]].self, from: Data(text("/asked/\(key)").utf8))
  }

  /// What the clients of an upstream with positions have done.
  public struct Told: Decodable, Sendable {
    /// The positions of requests in order.
    public let positions: [String]
    /// The number of the last update that was confirmed, and of the last one that was sent.
    public let confirmed: Int
    /// See `confirmed`.
    public let sent: Int
    /// The number of updates that were sent again.
    public let twice: Int
    /// The number of requests during another one.
    public let refused: Int
  }

  /// What the clients of that key have done.
  public func told(_ key: String) throws -> Told {
    try JSONDecoder().decode(Told.self, from: Data(text("/told/\(key)").utf8))
  }

  /// How the clients of an upstream with limits listen.
  public struct Listened: Decodable, Sendable {
    /// The number of requests.
    public let requests: Int
    /// The number of requests before the time that the upstream had said.
    public let early: Int
    /// The number of requests above the limit.
    public let over: Int
  }

  /// How the clients of that key listen.
  public func listened(_ key: String) throws -> Listened {
    try JSONDecoder().decode(Listened.self, from: Data(text("/listened/\(key)").utf8))
  }

  /// What upstreams for many values were asked.
  public struct Unioned: Decodable, Sendable {
    /// The values of each request.
    public let requests: [[String]]
    /// Connections in all, those that are open, and those that were closed because of a rule.
    public let connections: Int
    /// See `connections`.
    public let open: Int
    /// See `connections`.
    public let broken: Int
    /// Those of all connections, in their order.
    public let values: [String]
    /// How often each value was subscribed to.
    public let subscribed: [String: Int]
    /// How often each value was unsubscribed from.
    public let unsubscribed: [String: Int]
  }

  /// What that key was asked.
  /// - Parameter cuts: whether all its connections end.
  public func unioned(_ key: String, cuts: Bool = false) throws -> Unioned {
    try JSONDecoder().decode(Unioned.self, from: Data(text("/unioned/\(key)\(cuts ? "?cut=1" : "")").utf8))
  }

  /// What a model was asked.
  public struct Modelled: Decodable, Sendable {
    /// The number of requests by their bodies.
    public let requests: [String: Int]
    /// The types of the bodies, in order.
    public let types: [String]
    /// The number of answers that were read to their ends.
    public let complete: Int
    /// The number of answers whose reader has left.
    public let left: Int
  }

  /// What the model of that key was asked.
  public func modelled(_ key: String) throws -> Modelled {
    try JSONDecoder().decode(Modelled.self, from: Data(text("/modelled/\(key)").utf8))
  }

  /// What an OAuth2 server has granted.
  public struct Granted: Decodable, Sendable {
    /// The number of requests for a token, and of those that were refused.
    public let requests: Int
    /// See `requests`.
    public let refused: Int
    /// How often a refresh token was used that was replaced.
    public let reused: Int
    /// The form of the last request for a token, and its `authorization`.
    public let last: [String: String]
    /// The number of requests with each token.
    public let uses: [String: Int]
  }

  /// What the server of that key has granted.
  public func granted(_ key: String) throws -> Granted {
    try JSONDecoder().decode(Granted.self, from: Data(text("/granted/\(key)").utf8))
  }

  /// The body of a response.
  public func text(_ path: String) throws -> String {
    let raw = socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    let connection = OwnedDescriptor(raw)
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = places.port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    let connected = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(raw, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
    guard connected == 0 else { throw SystemError("connect") }
    let request = "GET \(path) HTTP/1.0\r\nConnection: close\r\n\r\n"
    send(connection.raw, request, request.utf8.count, 0)
    var answer: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 4096)
    while true {
      let count = recv(connection.raw, &buffer, buffer.count, 0)
      guard count > 0 else { break }
      answer += buffer[..<count]
    }
    let response = String(decoding: answer, as: UTF8.self)
    return response.firstRange(of: "\r\n\r\n").map { String(response[$0.upperBound...]) } ?? ""
  }
}

/// A path's part that no other test has.
public func uniqueKey() -> String { UUID().uuidString }
