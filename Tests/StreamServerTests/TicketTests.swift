import CLinux
import Events
import Glibc
import HTTP
import RSocket
import Reactive
import StreamProtocol
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// Tickets, with which browsers open event streams and WebSockets as the user of a token.
@Suite struct TicketTests {
  private let alice = ClientToken(name: "alice", secret: "alice-0123456789")
  private let bob = ClientToken(name: "bob", secret: "bob-012345678901")
  private let bearer = "Authorization: Bearer alice-0123456789"

  /// A server with the streams `alices` and `inbox`, which alice alone may read and publish to.
  private func fill(_ harness: ServerHarness) throws -> InternetAddress {
    harness.server.setTokens([alice, bob])
    let rules = AccessRules([.user(4_000_000)]).adding(tokens: ["alice"])
    try harness.add("alices") { ($0.read, $0.replay) = (rules, 1) }.send([0x31])
    try harness.addPublished("inbox") { $0.write = rules }
    return try harness.listenOnTCP()
  }

  private func ticket(_ address: InternetAddress, sourceLocation: SourceLocation = #_sourceLocation) throws -> String {
    let response = try HTTPWireClient(address).fetch("/tickets", method: "POST", bearer)
    let isGiven = response.status == 200 && response["Cache-Control"] == "no-store"
    let parts = response.text.split(separator: "\"")
    #expect(isGiven && parts.count == 9 && parts[1] == "ticket", "\(response)", sourceLocation: sourceLocation)
    #expect(parts[5] == "expires" && parts[7].hasSuffix("Z"), "\(response)", sourceLocation: sourceLocation)
    #expect(parts[3].utf8.count == 43 && parts[3].allSatisfy { $0.isLetter || $0.isNumber || "-_".contains($0) })
    return String(parts[3])
  }

  @Test func aTicketAdmitsOneRequestAsTheUserOfItsToken() async throws {
    try await withServer { harness in
      let address = try fill(harness)
      let client = try HTTPWireClient(address)
      #expect(try client.fetch("/streams/alices").status == 401)
      let first = try ticket(address)
      #expect(try client.fetch("/streams/alices?ticket=\(first)").text == "1")
      #expect(try client.fetch("/streams/alices").status == 401, "the connection has the user for one request")
      let again = try client.fetch("/streams/alices?ticket=\(first)")
      #expect(again.status == 401 && again.text.contains("the ticket is not valid"), "\(again)")
      #expect(again["WWW-Authenticate"] != nil)
      let stream = try HTTPWireClient(address)
      stream.get("/streams/alices?as=sse&ticket=\(try ticket(address))")
      #expect(try stream.head()?.status == 200)
      let socket = try WebSocketClient(HTTPWireClient(address), at: "/streams/alices?ticket=\(try ticket(address))")
      #expect(try socket.whole()?.payload == [0x31])
      let publisher = try WebSocketClient(
        HTTPWireClient(address), at: "/streams/inbox?publish=1&ticket=\(try ticket(address))")
      publisher.send(WebSocketClient.message([0x32]))
      #expect(try publisher.text() == "{\"accepted\":1}")
      let rsocket = try WebSocketClient(HTTPWireClient(address), at: "/rsocket?ticket=\(try ticket(address))")
      rsocket.send(.setup(Setup()))
      rsocket.subscribe("alices", credit: 1)
      #expect(try rsocket.event() == [0x31])
    }
  }

  /// Also by one that is refused, so that nobody who has seen it can use it later.
  @Test func aTicketIsUsedUpByTheFirstGETWhateverItsAnswerIs() async throws {
    try await withServer { harness in
      let address = try fill(harness)
      for (target, fields, status) in [
        ("none", [], 404), ("alices?from=x", [], 400), ("inbox", [], 204), ("alices?ticket=x", [], 400),
        ("alices", [bearer], 400),
      ] as [(String, [String], Int)] {
        let ticket = try ticket(address)
        let client = try HTTPWireClient(address)
        let all = target + (target.contains("?") ? "&" : "?") + "ticket=\(ticket)"
        client.request("GET", "/streams/\(all)", fields)
        #expect(try client.response().status == status, "\(target)")
        #expect(try client.fetch("/streams/alices?ticket=\(ticket)").status == 401, "\(target)")
      }
    }
  }

  @Test func aTicketIsNotUsedUpByOtherRequests() async throws {
    try await withServer { harness in
      let address = try fill(harness)
      let ticket = try ticket(address)
      let client = try HTTPWireClient(address)
      let head = try client.fetch("/streams/alices?ticket=\(ticket)", method: "HEAD")
      #expect(head.status == 405 && head["Allow"] == "GET, OPTIONS", "\(head)")
      client.request("POST", "/streams/inbox?ticket=\(ticket)", [], body: [0x31])
      #expect(try client.response().status == 405)
      let other = try HTTPWireClient(address)
      #expect(try other.fetch("/streams/alices?ticket=\(ticket)", method: "OPTIONS").status == 204)
      #expect(try other.fetch("/streams/alices?ticket=\(ticket)", "Origin: http://a.example").status == 403)
      #expect(try other.fetch("/streams/alices?ticket=\(ticket)").status == 200)
    }
  }

  @Test func ofTwoRequestsWithOneTicketOneIsAdmitted() async throws {
    try await withServer(ServerLimits(workers: 2)) { harness in
      let address = try fill(harness)
      for _ in 0..<50 {
        let ticket = try ticket(address)
        let clients = try (0..<4).map { _ in try HTTPWireClient(address) }
        for client in clients { client.get("/streams/alices?ticket=\(ticket)") }
        let statuses = try clients.map { try $0.response().status }.sorted()
        #expect(statuses == [200, 401, 401, 401])
      }
    }
  }

  @Test func ticketsAreForTheUsersOfTokens() async throws {
    try await withServer { harness in
      let address = try fill(harness)
      let client = try HTTPWireClient(address)
      let anonymous = try client.fetch("/tickets", method: "POST")
      #expect(anonymous.status == 401 && anonymous["WWW-Authenticate"] != nil, "\(anonymous)")
      #expect(try client.fetch("/tickets", method: "POST", "Authorization: Bearer x").status == 401)
      #expect(try client.fetch("/tickets?a=1", method: "POST", bearer).status == 400)
      let got = try client.fetch("/tickets", bearer)
      #expect(got.status == 405 && got["Allow"] == "POST, OPTIONS", "\(got)")
      let local = try HTTPWireClient(harness).fetch("/tickets", method: "POST", bearer)
      #expect(local.status == 405 && local.text.contains("needs no ticket") && local["Allow"] == "OPTIONS", "\(local)")
      // As a token is.
      #expect(try HTTPWireClient(harness).fetch("/streams/inbox?ticket=x", bearer).status == 204)
      harness.server.setTokens([])
      #expect(try HTTPWireClient(address).fetch("/tickets", method: "POST", bearer).status == 405)
    }
  }

  @Test func aTicketOfARemovedTokenIsNotValid() async throws {
    try await withServer { harness in
      let address = try fill(harness)
      let tickets = try [ticket(address), ticket(address)]
      harness.server.setTokens([ClientToken(name: "alice", secret: "another-one-0123"), bob])
      #expect(try HTTPWireClient(address).fetch("/streams/alices?ticket=\(tickets[0])").status == 401)
      harness.server.setTokens([alice, bob])
      #expect(try HTTPWireClient(address).fetch("/streams/alices?ticket=\(tickets[1])").status == 401)
    }
  }

  @Test func aUserHasALimitOfOpenTickets() {
    let tickets = ClientTickets()
    let issued = (0..<64).compactMap { _ in tickets.issue(to: alice, at: 1000) }
    #expect(Set(issued).count == 64 && tickets.issue(to: alice, at: 1000) == nil)
    #expect(tickets.issue(to: bob, at: 1000) != nil)
    #expect(tickets.token(of: issued[0], isUsed: true, at: 2000) == alice.saved)
    #expect(tickets.token(of: issued[0], isUsed: true, at: 2000) == nil)
    #expect(tickets.issue(to: alice, at: 2000) != nil && tickets.issue(to: alice, at: 2000) == nil)
    let later = UInt64(30_000_000_000) + 1000
    #expect(tickets.token(of: issued[1], isUsed: false, at: later - 1) == alice.saved)
    #expect(tickets.token(of: issued[1], isUsed: true, at: later) == nil)
    #expect(tickets.issue(to: alice, at: later) != nil)
    for text in ["", String(repeating: "A", count: 43), issued[2] + "=", String(repeating: "é", count: 22)] {
      #expect(tickets.token(of: text, isUsed: true, at: 1000) == nil)
    }
  }

  @Test func aRestartKeepsTicketsAndWhatIsUsedUp() async throws {
    try await withTwoServers { first, next in
      let addresses = try [first, next].map { try fill($0) }
      let tickets = try [ticket(addresses[0]), ticket(addresses[0])]
      #expect(try HTTPWireClient(addresses[0]).fetch("/streams/alices?ticket=\(tickets[0])").status == 200)
      try await first.handOver(to: next)
      #expect(try HTTPWireClient(addresses[1]).fetch("/streams/alices?ticket=\(tickets[0])").status == 401)
      #expect(try HTTPWireClient(addresses[1]).fetch("/streams/alices?ticket=\(tickets[1])").status == 204)
    }
  }

  @Test func aDamagedStateHasNoTicketThatIsOpenForLong() {
    let tickets = ClientTickets()
    let now = EventLoop.monotonicNow()
    tickets.restore(
      [0, now, now + 60_000_000_000, .max].map { .init(digest: [1], token: alice.saved, end: $0) }
        + (0..<100).map { .init(digest: [UInt8($0)], token: alice.saved, end: now + 10_000_000_000) })
    #expect(tickets.open.count == 64)
  }

  /// A template's stream is made before the request is answered.
  @Test func aTicketIsInNoReport() async throws {
    try await withServer { harness in
      harness.setWantsDetails(true)
      let address = try fill(harness)
      let ticket = try ticket(address)
      for target in ["/streams/alices", "/streams/none", "/streams/alices?as=x"] {
        let all = target + (target.contains("?") ? "&" : "?") + "ticket=\(ticket)"
        let response = try HTTPWireClient(address).fetch(all)
        #expect(!response.text.contains(ticket))
      }
      #expect(!harness.reports.isEmpty && !"\(harness.reports)".contains(ticket))
    }
  }

  /// Where hosts have their share of the connections, a ticket admits as a token does.
  @Test func aTicketAdmitsToAServerThatIsFullForHosts() async throws {
    try await withServer(ServerLimits(workers: 1, connections: 8)) { harness in
      let address = try fill(harness)
      let ticket = try ticket(address)
      harness.eventually { harness.server.statistics.connections == 0 }
      let hosts = try (0..<8).map { _ in try HTTPWireClient(address) }
      harness.eventually { harness.server.statistics.connections > 3 }
      usleep(50_000)
      let client = try HTTPWireClient(address)
      #expect(try client.fetch("/streams/alices").status == 503)
      let other = try HTTPWireClient(address)
      #expect(try other.fetch("/streams/alices?ticket=\(ticket)").status == 200)
      withExtendedLifetime(hosts) {}
    }
  }
}
