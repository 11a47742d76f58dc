import Fleet
import TestSupport
import Testing

@testable import JetStream

/// How a host proves what it is, and the broker.
@Suite(.timeLimit(.minutes(10))) struct IdentityTests {
  private static let publicKey = "UDWUSKGGFDI4FRXK5EBTRECZSVQSSWJHHJOGH6JWG3AUMFFMQ435C2U4"
  private static let seed = "SUAAGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGA6BEM"

  @Test func keyIsAcceptedAndItsSeedNeverReported() async throws {
    let broker = try await Broker("authorization: { users: [{ nkey: \(Self.publicKey) }] }")
    var options = options(broker)
    options.credentials = .nkey(publicKey: Self.publicKey, seed: Self.seed)
    let host = try FleetHost(options)
    #expect(await host.isConnected(), "\(host.reports.reasons)")
    for seed in [String(Self.seed.dropLast()), Self.seed + "A", "", "SU"] {
      options.credentials = .nkey(publicKey: Self.publicKey, seed: seed)
      let other = try FleetHost(options)
      #expect(await other.reaches { !$0.reasons.isEmpty })
      #expect(other.reports.reasons.first?.hasPrefix("cannot connect to NATS: ") == true)
      #expect(!other.reports.reasons.contains { $0.contains("SUAAG") })
    }
  }

  @Test func credentialsOfAnOperatorsUserAreAccepted() async throws {
    let operators = String(decoding: try fixture("operator.conf"), as: UTF8.self)
    let content = String(decoding: try fixture("user.creds"), as: UTF8.self)
    let broker = try await Broker(operators)
    var options = options(broker)
    options.credentials = .credentials(content)
    let host = try FleetHost(options)
    #expect(await host.isConnected(), "\(host.reports.reasons)")
    #expect(await host.append([1], after: 0) == .stored)
    options.credentials = .credentials(content.replacing("\n", with: "\r\n"))
    let other = try FleetHost(options)
    #expect(await other.isConnected(), "\(other.reports.reasons)")
    for broken in ["", "-----BEGIN NATS USER JWT-----", content.replacing("SUAAG", with: "SUAAA"), "\n\n---\n"] {
      options.credentials = .credentials(broken)
      let other = try FleetHost(options)
      #expect(await other.reaches { !$0.reasons.isEmpty })
      #expect(other.reports.reasons.allSatisfy { !$0.contains("SUAA") && !$0.contains("eyJ") })
    }
  }

  private func tls(_ more: String = "") async throws -> (Broker, JetStreamOptions) {
    let upstream = try Upstream.shared.get()
    let broker = try await Broker(
      """
      tls: { cert_file: "\(upstream.file("server.pem"))", key_file: "\(upstream.file("server.key"))",
        ca_file: "\(upstream.file("authority.pem"))", timeout: 60 \(more) }
      """)
    var options = options(broker)
    options.servers = ["tls://localhost:\(broker.port)"]
    return (broker, options)
  }

  @Test func entriesPassThroughTLS() async throws {
    var (broker, options) = try await tls(", verify: true")
    let upstream = try Upstream.shared.get()
    options.authoritiesFile = upstream.file("authority.pem")
    options.certificateFile = upstream.file("client.pem")
    options.keyFile = upstream.file("client.key")
    let host = try FleetHost(options)
    #expect(await host.isConnected(), "\(host.reports.reasons)")
    let entry = (0..<1_000_000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
    for sequence in 0..<8 as Range<UInt64> { #expect(await host.append(entry, after: sequence) == .stored) }
    #expect(await host.read(after: 0)?.entries.map(\.bytes) == Array(repeating: entry, count: 8))
    #expect(await host.reaches { $0.tail.count == 8 })
    for count in 1...2 {
      let formerCount = host.reports.reasons.count
      broker.kill()
      #expect(await host.reaches { $0.reasons.count > formerCount })
      try await broker.start()
      #expect(await host.isConnected(times: count + 1))
    }
    #expect(await host.append([1], after: 8) == .stored)
  }

  @Test func brokerThatDoesNotAnswerOverTLSCostsTheConnection() async throws {
    var (broker, options) = try await tls()
    options.authoritiesFile = try Upstream.shared.get().file("authority.pem")
    options.answerTimeout = .milliseconds(300)
    options.connectTimeout = .seconds(5)
    options.pingInterval = .milliseconds(500)
    let host = try FleetHost(options)
    #expect(await host.isConnected(), "\(host.reports.reasons)")
    let formerCount = host.reports.connections
    try broker.stop()
    // More than the sockets hold: the thread that writes is blocked.
    let entry = [UInt8](repeating: 1, count: 1_000_000)
    await withTaskGroup(of: Void.self) { group in
      for _ in 0..<20 { group.addTask { #expect(await host.append(entry, after: 0) == .unknown) } }
    }
    #expect(await host.reaches { !$0.reasons.isEmpty })
    broker.resume()
    #expect(await host.isConnected(times: formerCount + 1))
  }

  @Test func untrustedBrokerIsNotConnectedTo() async throws {
    let (broker, options) = try await tls()
    let host = try FleetHost(options)  // only the system's authorities
    #expect(await host.reaches { !$0.reasons.isEmpty })
    let expected = "cannot connect to NATS: the server's certificate is refused: "
    #expect(host.reports.reasons.first?.hasPrefix(expected) == true, "\(host.reports.reasons)")
    #expect(host.reports.connections == 0)
    withExtendedLifetime(broker) {}
  }

  @Test func certificateMustBeForTheNameOrAddress() async throws {
    var (broker, options) = try await tls()
    options.authoritiesFile = try Upstream.shared.get().file("authority.pem")
    options.servers = ["tls://127.0.0.1:\(broker.port)"]
    let host = try FleetHost(options)
    #expect(await host.isConnected(), "\(host.reports.reasons)")
    options.servers = ["tls://127.1:\(broker.port)"]  // leads to the same address
    let other = try FleetHost(options)
    #expect(await other.reaches { !$0.reasons.isEmpty })
    let expected = "cannot connect to NATS: the server's certificate is refused: hostname mismatch"
    #expect(
      other.reports.reasons.first?.lowercased().hasPrefix(expected.lowercased()) == true, "\(other.reports.reasons)")
    #expect(other.reports.connections == 0)
  }

  /// A broker that requires TLS is not connected to in plain text, whatever the URL says.
  @Test func brokerThatRequiresTLSGetsItAlsoWithoutTheScheme() async throws {
    var (broker, options) = try await tls()
    options.authoritiesFile = try Upstream.shared.get().file("authority.pem")
    options.servers = ["nats://localhost:\(broker.port)"]
    let host = try FleetHost(options)
    #expect(await host.isConnected(), "\(host.reports.reasons)")
    #expect(await host.append([1], after: 0) == .stored)
  }

  @Test func hostWithoutAClientCertificateIsRefused() async throws {
    var (broker, options) = try await tls(", verify: true")
    options.authoritiesFile = try Upstream.shared.get().file("authority.pem")
    let host = try FleetHost(options)
    #expect(await host.reaches { !$0.reasons.isEmpty })
    #expect(host.reports.connections == 0)
    options.certificateFile = "/nonexistent"
    options.keyFile = "/nonexistent"
    let other = try FleetHost(options)
    #expect(await other.reaches { !$0.reasons.isEmpty })
    #expect(other.reports.reasons.first?.hasPrefix("cannot connect to NATS: ") == true, "\(other.reports.reasons)")
    withExtendedLifetime(broker) {}
  }

  @Test func brokerWithoutTLSIsNotUsed() async throws {
    let broker = try await Broker()
    var options = options(broker)
    options.servers = ["tls://localhost:\(broker.port)"]
    let host = try FleetHost(options)
    #expect(await host.reaches { !$0.reasons.isEmpty })
    #expect(host.reports.reasons.first == "cannot connect to NATS: the server has no TLS")
    #expect(host.reports.connections == 0)
  }
}
