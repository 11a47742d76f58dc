import CLinux
import Glibc
import RSocket
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

extension ServerHarness {
  /// Listens on TCP, too.
  func listenOnTCP() throws -> InternetAddress {
    let address = uniqueAddress()
    server.listen(on: try TCPSocket.listen(on: address))
    return address
  }

  /// The users that connections count for, with the numbers of their connections.
  var users: [ClientUser: Int] {
    get async {
      var users: [ClientUser: Int] = [:]
      for worker in server.workers {
        let found = await withCheckedContinuation { continuation in
          worker.loop.execute { continuation.resume(returning: worker.allConnections.map(\.share.account.user)) }
        }
        for user in found { users[user, default: 0] += 1 }
      }
      return users
    }
  }
}

extension WireClient {
  /// A client over TCP that has sent SETUP with this metadata.
  convenience init(_ address: InternetAddress, metadata: [UInt8]? = nil) throws {
    self.init(taking: try TCPSocket.connect(to: address).release())
    send(
      .setup(
        Setup(
          maximumLifetime: .seconds(300), metadataMIMEType: MetadataFormat.composite.mimeType,
          payload: Payload(metadata: metadata))))
  }

  convenience init(_ address: InternetAddress, token: String) throws {
    try self.init(address, metadata: MetadataFormat.metadata(bearerToken: token.utf8))
  }

  /// REQUEST_STREAM with composite metadata.
  func read(_ name: String, id: UInt32 = 1) throws {
    let payload = Payload(metadata: try MetadataFormat.composite.metadata(route: name))
    send(.request(StreamID(id), .stream, initialRequest: 9, payload, follows: false, isComplete: false))
  }
}

extension HTTPWireClient {
  convenience init(_ address: InternetAddress) throws {
    self.init(WireClient(taking: try TCPSocket.connect(to: address).release()))
  }
}

/// Clients over TCP with tokens.
@Suite struct TokenTests {
  private let alice = "alice-0123456789"
  private let bob = "bob-012345678901"
  private var tokens: [ClientToken] { [.init(name: "alice", secret: alice), .init(name: "bob", secret: bob)] }

  private func bearer(_ token: String) -> String { "Authorization: Bearer \(token)" }

  /// A server with the streams `open`, `alices` and `inbox`, to which bob may publish.
  private func fill(_ harness: ServerHarness, tokens: [ClientToken]? = nil) throws -> InternetAddress {
    harness.server.setTokens(tokens ?? self.tokens)
    for (name, rules) in [
      ("open", AccessRules()), ("alices", AccessRules([.user(4_000_000)]).adding(tokens: ["alice"])),
    ] {
      try harness.add(name) { ($0.read, $0.replay) = (rules, 1) }.send([0x31])
    }
    try harness.addPublished("inbox") { $0.write = AccessRules.owner.adding(tokens: ["bob"]) }
    return try harness.listenOnTCP()
  }

  // MARK: HTTP

  @Test func aRequestHasTheRightsOfItsToken() async throws {
    try await withServer { harness in
      let address = try fill(harness)
      let client = try HTTPWireClient(address)
      #expect(try client.fetch("/streams/open").status == 200)
      let anonymous = try client.fetch("/streams/alices")
      #expect(anonymous.status == 401 && anonymous["WWW-Authenticate"] == "Bearer realm=\"streamd\"")
      #expect(anonymous.text.contains(#"a client without credentials may not read \"alices\""#))
      #expect(try client.fetch("/streams/alices", bearer(alice)).status == 200)
      #expect(try client.fetch("/streams/alices", "authorization: bEARER   \(alice)").status == 200)
      let other = try client.fetch("/streams/alices", bearer(bob))
      #expect(other.status == 403 && other["WWW-Authenticate"] == nil)
      // Where a token could show more, the response says so.
      for (path, token, isAsked) in [
        ("$streams", nil, true), ("$streams", bob, false), ("open", nil, false), ("open,$streams", nil, true),
      ] as [(String, String?, Bool)] {
        let client = try HTTPWireClient(address)
        let list = try client.fetch(
          "/streams/\(path)?as=ndjson&ids=1&follow=0", token.map(bearer) ?? "User-Agent: test")
        #expect(list.status == 200 && (list["WWW-Authenticate"] != nil) == isAsked, "\(path)")
      }
      #expect(other.text.contains(#"token \"bob\" may not read \"alices\""#))
      #expect(try client.fetch("/streams/none", bearer(bob)).status == 404)
      client.post("/streams/inbox", "2", bearer(bob))
      #expect(try client.response().status == 200)
      client.post("/streams/inbox", "3", bearer(alice))
      #expect(try client.response().text.contains(#"to admit it, add it to write of the token"#))
      let last = try HTTPWireClient(address)
      last.post("/streams/inbox", "4")
      #expect(try last.response().status == 401)
    }
  }

  @Test func aWrongTokenIsRefusedAtEveryResource() async throws {
    try await withServer { harness in
      let client = try HTTPWireClient(try fill(harness))
      #expect(try client.fetch("/streams/alices", bearer(alice)).status == 200)
      for token in ["wrong", "", alice + "=", String(alice.dropLast()), String(repeating: "x", count: 9000)] {
        for target in ["/", "/streams/open", "/streams", "/metrics", "/healthz", "/rsocket", "/none"] {
          let response = try client.fetch(target, bearer(token))
          #expect(response.status == 401 && response["WWW-Authenticate"] == "Bearer realm=\"streamd\"")
          #expect(response.text.contains("the token is not valid"))
        }
      }
      #expect(try client.fetch("/streams/open", bearer(alice), bearer(alice)).status == 401)
      // Other schemes are those of a proxy.
      #expect(try client.fetch("/streams/open", "Authorization: Basic YTpi").status == 200)
      #expect(try client.fetch("/streams/alices", "Authorization: Basic YTpi").status == 401)
      guard case .clientRefused(let refused, stream: nil, let reason)? = harness.reports.first else {
        return #expect(Bool(false), "not reported")
      }
      #expect(refused.token == nil, "the token of the former request")
      #expect(reason.hasPrefix("the token is not valid, from 127."), "\(reason)")
    }
  }

  @Test func withoutTokensAndOnUnixSocketsTheyAreIgnored() async throws {
    try await withServer { harness in
      let address = try fill(harness, tokens: [])
      #expect(try HTTPWireClient(address).fetch("/streams/open", bearer("x")).status == 200)
      #expect(try HTTPWireClient(address).fetch("/streams/alices", bearer(alice)).status == 403)
      let client = try WireClient(address, metadata: [1, 2])
      #expect(try client.isSilent())
      harness.server.setTokens(tokens)
      #expect(try HTTPWireClient(harness).fetch("/streams/open", bearer("x")).status == 200)
      #expect(try HTTPWireClient(harness).fetch("/streams/alices", bearer(alice)).status == 403)
    }
  }

  @Test func eachRequestOfAConnectionCountsForItsOwnUser() async throws {
    try await withServer { harness in
      let client = try HTTPWireClient(try fill(harness))
      for (token, user) in [(alice, "alice"), (bob, "bob"), (alice, "alice")] {
        #expect(try client.fetch("/streams/open", bearer(token)).status == 200)
        #expect(await harness.users == [.token(user): 1])
      }
      #expect(try client.fetch("/streams/open").status == 200)
      guard case .ipv4? = await harness.users.keys.first else { return #expect(Bool(false), "another user") }
      client.get("/streams/open?as=ndjson", bearer(alice))
      #expect(try client.head()?.status == 200)
      _ = try client.chunk()
      #expect(await harness.users == [.token("alice"): 1])
    }
  }

  @Test func systemStreamsShowWhatTheTokenShows() async throws {
    try await withServer { harness in
      let client = try HTTPWireClient(try fill(harness))
      func names(_ token: String?) throws -> [Bool] {
        let response = try client.fetch("/streams", token.map(bearer) ?? "X: y").text
        return ["open", "alices", "inbox"].map { response.contains(#""name":"\#($0)""#) }
      }
      #expect(try names(nil) == [true, false, true])
      #expect(try names(alice) == [true, true, true])
      #expect(try names(bob) == [true, false, true])
    }
  }

  // MARK: RSocket

  @Test func aConnectionHasTheRightsOfTheTokenInItsSetup() async throws {
    try await withServer { harness in
      let address = try fill(harness)
      for (client, user) in [
        (try WireClient(address), "a client without credentials"),
        (try WireClient(address, token: bob), "token \"bob\""),
      ] {
        try client.read("alices")
        #expect(try client.receive() == .error(StreamID(1), .rejected, "\(user) may not read \"alices\""))
        try client.read("open", id: 3)
        #expect(try client.events(1) == [[0x31]])
      }
      let client = try WireClient(address, token: alice)
      try client.read("alices")
      #expect(try client.events(1) == [[0x31]])
      #expect(await harness.users[.token("alice")] == 1)
    }
  }

  @Test func aSetupWithoutAValidTokenIsRejected() async throws {
    try await withServer { harness in
      let address = try fill(harness)
      let name = Array("message/x.rsocket.authentication.v0".utf8)
      let invalid: [([UInt8], String)] = [
        (MetadataFormat.metadata(bearerToken: Array("wrong".utf8)), "the token is not valid"),
        (MetadataFormat.metadata(bearerToken: []), "the token is not valid"),
        (MetadataFormat.metadata(bearerToken: [UInt8](repeating: 0x61, count: 60_000)), "the token is not valid"),
        ([0xfc, 0, 0, 0], "the authentication entry is empty"),
        (
          [0xfc, 0, 0, 5, 0x80, 0, 1, 0x61, 0x62],
          "a user name and password are not supported: send a bearer token"
        ),
        ([0xfc, 0, 0, 2, 0x82, 0x61], "the type of the authentication is not known: send a bearer token"),
        (
          [UInt8(name.count - 1)] + name + [0, 0, 3, 0, 0x61, 0x62],
          "the type of the authentication is not known: send a bearer token"
        ),
        ([0xfc, 0, 0, 9, 0x81], "the composite metadata ends inside an entry"),
        ([0xfc, 0], "the composite metadata ends inside an entry"),
      ]
      for (metadata, sentence) in invalid {
        let client = try WireClient(address, metadata: metadata)
        try client.read("open")
        #expect(try client.receive() == .error(.connection, .rejectedSetup, sentence))
        #expect(try client.receive() == nil)
      }
      #expect(harness.server.statistics.refused == UInt64(invalid.count))
    }
  }

  @Test func aWebSocketHasTheTokenOfItsHandshakeOrOfItsSetup() async throws {
    try await withServer { harness in
      let address = try fill(harness)
      for inHandshake in [true, false] {
        let http = try HTTPWireClient(address)
        let field = inHandshake ? "Authorization: Bearer \(alice)\r\n\r\n" : "\r\n"
        http.send(String(WebSocketClient.handshake.dropLast()) + field)
        #expect(try http.head()?.status == 101)
        let client = WebSocketClient(http)
        let metadata = inHandshake ? nil : MetadataFormat.metadata(bearerToken: alice.utf8)
        client.send(
          .setup(
            Setup(metadataMIMEType: MetadataFormat.composite.mimeType, payload: Payload(metadata: metadata))))
        let route = Payload(metadata: try MetadataFormat.composite.metadata(route: "alices"))
        client.send(.request(StreamID(1), .stream, initialRequest: 1, route, follows: false, isComplete: false))
        #expect(try client.event() == [0x31])
        #expect(await harness.users[.token("alice")] == 1)
        client.send(WebSocketClient.message([], opcode: 8))
        _ = try client.message()
        _ = try client.message()
      }
    }
  }

  // MARK: Limits

  @Test func theLimitsOfAUserAreThoseOfItsToken() async throws {
    var limits = ServerLimits(workers: 1)
    (limits.connectionsPerUser, limits.requestsPerUser) = (2, 1)
    try await withServer(limits) { harness in
      let address = try fill(harness)
      let first = try WireClient(address, token: alice)
      let second = try WireClient(address, token: alice)
      try first.read("open")
      #expect(try first.events(1) == [[0x31]] && second.isSilent())
      try second.read("open")
      #expect(try second.receive() == .error(StreamID(1), .rejected, "token \"alice\" has 1 requests already"))
      let sentence = "token \"alice\" has 2 connections already (max_connections_per_user)"
      let third = try WireClient(address, token: alice)
      #expect(try third.receive() == .error(.connection, .rejectedSetup, sentence))
      let fourth = try HTTPWireClient(address)
      let refused = try fourth.fetch("/streams/open", bearer(alice))
      #expect(refused.status == 503 && refused.text.contains("has 2 connections already"))
      // Another user on the same connection.
      #expect(try fourth.fetch("/streams/open", bearer(bob)).status == 200)
    }
  }

  @Test func publishersOfDifferentTokensMayHaveEqualNames() async throws {
    try await withServer { harness in
      let address = try fill(harness)
      try harness.addPublished("both") { $0.write = AccessRules([.token("alice"), .token("bob")]) }
      for (token, last) in [(alice, 0), (bob, 0), (alice, 1)] as [(String, UInt64)] {
        let client = try WireClient(address, token: token)
        let entry = try PublisherEntry(name: [1], firstNumber: 1)
        let metadata = try MetadataFormat.composite.metadata(route: "both", publisher: entry)
        client.send(
          .request(
            StreamID(1), .channel, initialRequest: 9, Payload(metadata: metadata), follows: false, isComplete: false))
        guard case .payload(_, let greeting, _, _, _)? = try client.receive() else {
          return #expect(Bool(false), "no greeting")
        }
        #expect(greeting.data.prefix(8).reduce(0) { $0 << 8 | UInt64($1) } == last)
        client.value([1], isComplete: true)
        while case .payload(_, _, _, isComplete: false, _)? = try client.receive() {}
        while try client.receive() != .payload(StreamID(1), Payload(), follows: false, isComplete: true, isNext: false)
        {}
      }
    }
  }

  @Test func marksOfUsersOfTheMachineStayReadableForEarlierVersions() throws {
    var marks = PublisherMarks()
    marks.set(PublisherKey([7], of: .uid(1)), to: 2) { _ in false }
    marks.set(PublisherKey([8], of: .unknown), to: 3) { _ in false }
    let first: [UInt8] = [0x50, 0x55, 0x42, 0x4d, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 1, 7]
    let second: [UInt8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 3, 1, 8]
    #expect(marks.checkpoint?.bytes == first + second)
    #expect(PublisherMarks(marks.checkpoint) == marks)
    for user in [ClientUser.token("a"), .ipv4(7), .ipv6(8)] {
      marks.set(PublisherKey([9], of: user), to: 4) { _ in false }
      #expect(PublisherMarks(marks.checkpoint) == marks && marks.checkpoint?.bytes[4] == 2)
    }
  }

  // MARK: Other tokens

  @Test func connectionsWithATokenThatIsGoneEnd() async throws {
    try await withServer { harness in
      let address = try fill(harness)
      let (gone, changed) = (try WireClient(address, token: alice), try HTTPWireClient(address))
      let (stays, anonymous) = (try WireClient(address, token: bob), try WireClient(address))
      for client in [gone, stays, anonymous] {
        try client.read("open")
        #expect(try client.events(1) == [[0x31]])
      }
      changed.get("/streams/alices?as=sse", bearer(alice))
      _ = try changed.head()
      _ = try changed.chunk()
      harness.server.setTokens([tokens[1], ClientToken(name: "alice", secret: "another-0123456789")])
      let sentence = "token \"alice\" is not valid any more"
      #expect(try gone.receive() == .error(StreamID(1), .canceled, sentence))
      #expect(try gone.receive() == .error(.connection, .connectionClose, sentence))
      #expect(try gone.receive() == nil)
      var text = ""
      while let chunk = try changed.chunkText() { text += chunk }
      #expect(text.contains("event: end") && text.contains(#"token \"alice\" is not valid any more"#))
      #expect(try stays.isSilent() && anonymous.isSilent())
      #expect(try HTTPWireClient(address).fetch("/streams/alices", bearer("another-0123456789")).status == 200)
    }
  }

  @Test func aTokenIsHandedOverByNameAndContent() async throws {
    try await withTwoServers { first, next in
      let address = try fill(first)
      _ = try fill(next, tokens: [tokens[0], ClientToken(name: "bob", secret: "another-0123456789")])
      let clients = [try WireClient(address, token: alice), try WireClient(address, token: bob)]
      let requests = [try HTTPWireClient(address), try HTTPWireClient(address)]
      for client in clients {
        try client.read("open")
        #expect(try client.events(1) == [[0x31]])
      }
      for (client, token) in zip(requests, [alice, bob]) {
        client.get("/streams/open?wait=60s", bearer(token))
      }
      first.eventually { first.server.statistics.subscribers == 4 }
      try await first.handOver(to: next)
      #expect(try clients[0].isSilent())
      let sentence = "token \"bob\" is not valid any more"
      #expect(try clients[1].receive() == .error(StreamID(1), .canceled, sentence))
      #expect(try clients[1].receive() == .error(.connection, .connectionClose, sentence))
      #expect(try requests[1].response().status == 503)
      #expect(await next.users[.token("alice")] == 2)
    }
  }
}
