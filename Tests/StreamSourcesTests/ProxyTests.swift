import Foundation
import TestSupport
import Testing

@testable import StreamSources

@Suite(.timeLimit(.minutes(10))) struct ProxyTests {
  let upstream: Upstream
  let key = uniqueKey()

  init() throws { upstream = try Upstream.shared.get() }

  /// The proxies' requests with the test's key: method, target, Proxy-Authorization.
  private func proxied(_ key: String, on thread: SourceThread) async throws -> [[String]] {
    struct Request: Decodable {
      let fields: [String]
      init(from decoder: any Decoder) throws {
        var container = try decoder.unkeyedContainer()
        fields = [
          try container.decode(String.self), try container.decode(String.self), try container.decode(String.self),
          try container.decode([String].self).joined(separator: " "),
        ]
      }
    }
    let answer = try await thread.fetch(upstream.url("/proxied/\(key)")) { $0.route = .direct }
    return try JSONDecoder().decode([Request].self, from: Data(answer.body)).map(\.fields)
  }

  @Test func aRequestUsesTheProxy() async throws {
    try await withSourceThread { thread in
      let proxy = HTTPProxy(url: upstream.proxy)
      let fetched = try await thread.fetch(upstream.url("/count/\(key)")) { $0.route = .proxy(proxy) }
      #expect(fetched.text == "1\n")
      let requests = try await proxied(key, on: thread)
      #expect(requests.map { Array($0.prefix(3)) } == [["GET", upstream.url("/count/\(key)"), ""]])
    }
  }

  @Test(arguments: [
    ("127.0.0.1 port 3128 after 0 ms", "the environment's proxy 127.0.0.1:3128"),
    ("example.org port 3128 after 0 ms", "the environment's proxy example.org:3128"),
    ("Example.org port 8080 after 0 ms", nil), ("example.org", nil),
  ])
  func aProxyOfTheEnvironmentThatCannotBeReachedIsNamed(place: String, name: String?) throws {
    var request = UpstreamRequest(url: try HTTPURL("http://example.org:8080/"), userAgent: "test")
    let detail = "Failed to connect to \(place): Couldn't connect to server"
    #expect(request.proxyOfEnvironment(in: detail, insteadOf: request.url.origin) == name)
    request.route = .direct
    #expect(request.proxyOfEnvironment(in: detail, insteadOf: request.url.origin) == nil)
  }

  @Test func aServerWithAnIPv6AddressIsNoProxy() throws {
    let request = UpstreamRequest(url: try HTTPURL("http://[::1]:8080/"), userAgent: "test")
    let detail = "Failed to connect to ::1 port 8080 after"
    #expect(request.proxyOfEnvironment(in: detail, insteadOf: request.url.origin) == nil)
  }

  @Test func httpsUsesATunnelThroughTheProxy() async throws {
    try await withSourceThread { thread in
      let proxy = HTTPProxy(url: upstream.lockedProxy, login: HTTPLogin(user: "me", password: "proxy pass"))
      let trust = HTTPTrust(authorities: upstream.file("authority.pem"))
      let url = upstream.trustedURL("/count/\(key)")
      let fetched = try await thread.fetch(url) {
        ($0.route, $0.trust, $0.bearer) = (.proxy(proxy), trust, "secret")
        $0.headers = [HTTPHeader(name: "X-Api-Key", value: "secret")]
      }
      #expect(fetched.text == "1\n")
      let place = try HTTPURL(url).origin.authority
      let requests = try await proxied(place, on: thread)
      let request = try #require(requests.first { $0[2] == "Basic bWU6cHJveHkgcGFzcw==" })
      #expect(request[0] == "CONNECT")
      #expect(!request[3].split(separator: " ").contains { ["authorization", "x-api-key"].contains($0) })
      let headers = try await thread.lastHeaders(key, at: upstream)
      #expect(headers["authorization"] == "Bearer secret" && headers["proxy-authorization"] == nil)
    }
  }

  @Test(arguments: [nil, HTTPLogin(user: "me", password: "secret")])
  func aRefusalByTheProxyNamesIt(login: HTTPLogin?) async throws {
    try await withSourceThread { thread in
      let proxy = HTTPProxy(url: upstream.lockedProxy, login: login)
      let plain = try await thread.fetch(upstream.url("/count/\(key)")) { $0.route = .proxy(proxy) }
      #expect(plain.status == 407)
      let tunnel = try await thread.fetch(upstream.trustedURL("/count/\(key)")) { $0.route = .proxy(proxy) }
      #expect(tunnel.failure == "the proxy \(proxy.authority) answered HTTP 407 Proxy Authentication Required")
    }
  }

  @Test(arguments: ["http", "socks5", "socks5h"]) func anUnreachableProxyIsNamed(scheme: String) async throws {
    try await withSourceThread { thread in
      let proxy = HTTPProxy(
        url: "\(scheme)://127.0.0.1:1", login: HTTPLogin(user: "me", password: "secret"))
      let fetched = try await thread.fetch(upstream.url("/count/\(key)")) { $0.route = .proxy(proxy) }
      #expect(fetched.failure == "could not connect to the proxy 127.0.0.1:1: Connection refused")
    }
  }

  @Test func aRefusalByASOCKSProxyNamesIt() async throws {
    try await withSourceThread { thread in
      let proxy = HTTPProxy(url: upstream.refusingProxy, login: HTTPLogin(user: "me", password: "secret"))
      let fetched = try await thread.fetch(upstream.url("/count/\(key)")) { $0.route = .proxy(proxy) }
      #expect(fetched.failure == "the proxy \(proxy.authority) rejected the request")
    }
  }

  @Test func aUnixSocketUsesNoProxy() async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(upstream.url("/count/\(key)")) { [path = upstream.unixSocket] in
        ($0.unixSocket, $0.route) = (path, .proxy(HTTPProxy(url: "http://127.0.0.1:1")))
      }
      #expect(fetched.text == "1\n")
    }
  }

  @Test(arguments: [
    "http://p", "https://p:1", "socks5://10.0.0.1:1080", "socks5h://[::1]:1080", "HTTP://p:3128/",
  ])
  func validProxiesAreAccepted(url: String) {
    #expect(HTTPProxy(url: url).problem == nil)
  }

  @Test(arguments: ["", "p:3128", "ftp://p", "socks://p", "http://", "http://u:p@p", "http://p/x", "http://p:1/?x"])
  func anInvalidProxyIsRefusedWithoutRepeatingIt(url: String) {
    #expect(HTTPProxy(url: url).problem == "proxy: not a URL such as http://proxy.example.org:3128")
  }
}
