import TestSupport
import Testing

@testable import StreamSources

@Suite(.timeLimit(.minutes(10))) struct TrustTests {
  let upstream: Upstream
  let key = uniqueKey()
  let trust: HTTPTrust

  init() throws {
    upstream = try Upstream.shared.get()
    trust = HTTPTrust(
      authorities: upstream.file("authority.pem"),
      identity: HTTPIdentity(certificate: upstream.file("client.pem"), key: upstream.file("client.key")))
  }

  private func failure(_ url: String, _ trust: HTTPTrust) async throws -> String? {
    try await withSourceThread { thread in try await thread.fetch(url) { $0.trust = trust }.failure }
  }

  @Test func aConfiguredAuthorityIsTrusted() async throws {
    let url = upstream.trustedURL("/count/\(key)")
    #expect(try await failure(url, HTTPTrust(authorities: upstream.file("authority.pem"))) == nil)
    let without = try #require(try await failure(url, HTTPTrust()))
    #expect(without.hasPrefix("TLS with \(try HTTPURL(url).origin.authority) failed: SSL certificate problem: "))
  }

  @Test func aCertificateMayHaveAnotherNameThanTheURL() async throws {
    try await withSourceThread { thread in
      let authorities = trust.authorities
      for (name, isThere) in [("device.test", true), ("other.test", false)] {
        let url = upstream.trustedURL("/count/\(key)")
        let fetched = try await thread.fetch(url) {
          $0.trust = HTTPTrust(authorities: authorities, serverName: name)
        }
        #expect((fetched.failure == nil) == isThere, "\(name) \(fetched)")
        #expect(isThere || fetched.failure?.contains("other.test") == true, "\(fetched)")
      }
      let head = try await thread.lastHeaders(key, at: upstream)
      #expect(head["host"] == (try HTTPURL(upstream.trustedURL("/")).origin.authority) && head["sni"] == "device.test")
      // It is the name of the origin of the URL alone.
      let elsewhere = upstream.trustedURL(Upstream.redirect("a" + key, to: upstream.mutualURL("/count/b\(key)")))
      let identity = trust.identity
      let away = try await thread.fetch(elsewhere) {
        ($0.trust, $0.redirects) = (
          HTTPTrust(authorities: authorities, identity: identity, serverName: "device.test"), .any
        )
      }
      #expect(away.failure?.contains("client certificate") == true)
    }
  }

  @Test func aServerOfAnotherAuthorityIsRefused() async throws {
    let url = upstream.secureURL("/count/\(key)")
    let sentence = try #require(try await failure(url, HTTPTrust(authorities: upstream.file("authority.pem"))))
    #expect(sentence == "TLS with \(upstream.secureAuthority) failed: SSL certificate problem: self-signed certificate")
  }

  @Test func aMissingFileOfAuthoritiesIsNamed() async throws {
    let sentence = try #require(
      try await failure(upstream.trustedURL("/count/\(key)"), HTTPTrust(authorities: "/nonexistent/ca.pem")))
    #expect(sentence.contains("/nonexistent/ca.pem"))
  }

  @Test func aClientCertificateIsSentOnRequest() async throws {
    try await withSourceThread { thread in
      let trust = trust
      let fetched = try await thread.fetch(upstream.mutualURL("/count/\(key)")) { $0.trust = trust }
      #expect(fetched.text == "1\n")
      let headers = try await thread.lastHeaders(key, at: upstream)
      #expect(headers["client"] == "client")
    }
  }

  @Test func aKeyMayHaveAPassphrase() async throws {
    var locked = HTTPIdentity(
      certificate: upstream.file("client.pem"), key: upstream.file("locked.key"), passphrase: upstream.passphrase)
    let url = upstream.mutualURL("/count/\(key)")
    #expect(try await failure(url, HTTPTrust(authorities: trust.authorities, identity: locked)) == nil)
    for passphrase in [nil, "wrong secret"] {
      locked.passphrase = passphrase
      let sentence = try #require(
        try await failure(url, HTTPTrust(authorities: trust.authorities, identity: locked)))
      #expect(sentence.contains("unable to set private key file"), "\(sentence)")
      #expect(!sentence.contains("secret") && !sentence.contains("\n"))
    }
  }

  @Test func aMissingOrWrongClientCertificateIsReported() async throws {
    let url = upstream.mutualURL("/count/\(key)")
    let place = try HTTPURL(url).origin.authority
    // The server's alert may be lost: it closes with an unread request, which resets the connection.
    let closed = "TLS with \(place) failed: the server closed the connection; it may require another client certificate"
    let without = try await failure(url, HTTPTrust(authorities: trust.authorities))
    #expect([closed, "TLS with \(place) failed: the server requires a client certificate"].contains(without))
    let stranger = HTTPIdentity(certificate: upstream.file("stranger.pem"), key: upstream.file("stranger.key"))
    let wrong = try await failure(url, HTTPTrust(authorities: trust.authorities, identity: stranger))
    #expect(
      [closed, "TLS with \(place) failed: the server rejected the client certificate: unknown ca"].contains(wrong))
  }

  @Test func theCertificateIsSentOnlyToTheOriginOfTheURL() async throws {
    try await withSourceThread { thread in
      let trust = trust
      let there = upstream.trustedURL(Upstream.redirect(key, to: upstream.mutualURL("/count/b\(key)")))
      let fetched = try await thread.fetch(there) { ($0.trust, $0.redirects) = (trust, .https) }
      #expect(fetched.failure?.contains("client certificate") == true)
      let back = upstream.mutualURL(Upstream.redirect("c" + key, to: "/count/d\(key)"))
      let fetchedBack = try await thread.fetch(back) { ($0.trust, $0.redirects) = (trust, .https) }
      #expect(fetchedBack.text == "1\n")
      let headers = try await thread.lastHeaders("d" + key, at: upstream)
      #expect(headers["client"] == "client")
    }
  }

  /// A connection with a client certificate is not used for requests without one.
  @Test func connectionsAreNotSharedAcrossIdentities() async throws {
    try await withSourceThread { thread in
      let trust = trust
      let url = upstream.mutualURL("/count/\(key)")
      let with = try await thread.fetch(url) { $0.trust = trust }
      #expect(with.failure == nil)
      let without = try await thread.fetch(url) { $0.trust.authorities = trust.authorities }
      #expect(without.failure?.contains("client certificate") == true)
    }
  }
}
