import StreamSources
import TestSupport
import Testing

@testable import streamd

/// `streamd`, another streamd as a source.
struct ConfigurationPeerTests {
  private func errors(of section: String, more: String = "", before: String = "") -> [String] {
    streamdTests.errors("[streams.s.streamd]\n\(section)\n[streams.s]\n\(more)\n\(before)")
  }

  @Test func itHasAnAddressAStreamAndAFilter() throws {
    let folder = try TemporaryFolder(["token": "t0ken"])
    let configuration = try parse(
      """
      [streams.quotes.streamd]
      address = "unix:/run/other/streamd.sock"
      [streams.aapl]
      buffer = { events = 100, bytes = "64KiB" }
      retry = { first = "2s" }
      [streams.aapl.streamd]
      address = "tcp:other.example.org:7878"
      stream = "$stats"
      where = { "/symbol" = "AAPL" }
      token = { credential = "token" }
      max_body = "32KiB"
      """, credentials: folder.path)
    let peers = configuration.streams.compactMap { stream -> PeerConfiguration? in
      guard let peer = stream.source.section as? Configuration.Peer else { return nil }
      return PeerConfiguration(peer, of: stream)
    }
    let quotes = try #require(peers.first)
    let aapl = try #require(peers.last)
    #expect(quotes.address == .unix("/run/other/streamd.sock") && quotes.stream == "quotes" && quotes.filter == nil)
    #expect(quotes.maximumEventBytes == 8 << 20 && quotes.token == nil && quotes.batchLimit == (1024, 64 << 10))
    #expect(aapl.address == .tcp(host: "other.example.org", port: 7878) && aapl.stream == "$stats")
    #expect(aapl.filter.map { String(decoding: $0.json, as: UTF8.self) } == #"{"/symbol":"AAPL"}"#)
    #expect(aapl.maximumEventBytes == 32 << 10 && aapl.token == "t0ken" && aapl.batchLimit == (25, 16 << 10))
    #expect(aapl.retry.first == .seconds(2))
    #expect(configuration.streams.map(\.source.kind) == ["streamd", "streamd"])
    #expect(configuration.streams.allSatisfy { $0.source.section.hasUpstream })
    #expect(configuration.streams[1].source.section.eventLimit?.key == "streamd.max_body")
  }

  @Test(arguments: [
    ("", 1, "streamd: expected address, such as address = \"unix:/run/other/streamd.sock\", got none"),
    (
      "address = \"run/s\"", 2,
      "streamd.address: expected an address such as \"unix:/run/other/streamd.sock\" or "
        + "\"tcp:streamd.example.org:7878\", got \"run/s\""
    ),
    ("address = \"unix:/s\"\nstream = \"a b\"", 3, "streamd.stream: expected the name of a stream, got \"a b\""),
    (
      "address = \"tcp:h:1\"\ntoken = \"secret\"", 3,
      "streamd.token: expected { credential = \"name\" }, got a string"
    ),
    (
      "address = \"unix:/s\"\nwhere = { \"x\" = 1 }", 3,
      "streamd.where.x: \"x\" is no JSON pointer, such as \"/symbol\""
    ),
    (
      "address = \"unix:/s\"\nmax_body = \"2GiB\"", 3, "streamd.max_body: expected a size from 1B to 1GiB, got \"2GiB\""
    ),
    ("address = \"unix:/s\"\nadress = 1", 3, "streamd.adress: unknown key; did you mean \"address\"?"),
  ]) func aMistakeIsReported(section: String, line: Int, sentence: String) {
    #expect(errors(of: section) == ["test.toml:\(line): streams.s.\(sentence)"])
  }

  @Test func aTokenIsForTCP() throws {
    let folder = try TemporaryFolder(["token": "t0ken"])
    let text = "[streams.s.streamd]\naddress = \"unix:/s\"\ntoken = { credential = \"token\" }\n"
    #expect(
      streamdTests.errors(text, credentials: folder.path) == [
        "test.toml:3: streams.s.streamd.token: expected token only with an address of tcp: on a Unix socket the user is known"
      ])
  }

  @Test(arguments: [
    ("", "unix:/run/streamd/streamd.sock", "server.socket"), ("socket = \"/s\"", "unix:/s", "server.socket"),
    ("listen = [\"127.0.0.1:7878\"]", "tcp:127.0.0.1:7878", "server.listen"),
    ("listen = [\"127.0.0.1:7878\"]", "tcp:localhost:7878", "server.listen"),
    ("listen = [\"0.0.0.0:7878\"]\nhosts = [\"h\"]", "tcp:127.0.0.2:7878", "server.listen"),
    ("listen = [\"[::1]:7878\"]", "tcp:[::1]:7878", "server.listen"),
  ]) func aStreamDoesNotSubscribeToItself(server: String, address: String, key: String) {
    let text = "[server]\n\(server)\n[streams.s]\nread = [\"*\"]\nstreamd = { address = \"\(address)\" }\n"
    let found = streamdTests.errors(text)
    #expect(found.count == 1 && found.first?.contains("streams.s.streamd.address: expected the address of") == true)
    #expect(found.first?.contains("this one's own (\(key))") == true, "\(found)")
    // Another stream of this daemon is no circle.
    #expect(streamdTests.errors(text.replacing("\" }", with: "\", stream = \"t\" }")).isEmpty)
    #expect(
      streamdTests.errors(
        text.replacing("7878\" }", with: "7879\" }").replacing("sock\" }", with: "k\" }")
          .replacing("unix:/s\"", with: "unix:/t\"")
      ).isEmpty)
  }

  @Test func itIsNotForAFleet() {
    let cluster = "[cluster]\nnats = [\"nats://h\"]\nname = \"f\"\n"
    let found = errors(of: "address = \"unix:/s\"", more: "share = \"fleet\"", before: cluster)
    #expect(
      found.count == 1 && found.first?.contains("streams.s.share: expected no share = \"fleet\" with streamd") == true)
  }

  @Test func anEventMustFitIntoTheBuffer() {
    let found = errors(
      of: "address = \"unix:/s\"\nmax_body = \"2MiB\"", more: "buffer = { bytes = \"1MiB\" }")
    #expect(found.first?.contains("expected streamd.max_body of at most buffer.bytes") == true)
  }

  @Test func aChangeReplacesTheSource() throws {
    func stream(_ keys: String) throws -> Configuration {
      try parse("[streams.s.streamd]\naddress = \"unix:/s\"\n\(keys)")
    }
    let before = try stream("")
    for keys in ["stream = \"t\"", "where = { \"/a\" = 1 }", "max_body = \"1MiB\""] {
      let change = try #require(ConfigurationDifference(from: before, to: stream(keys)).changed.first)
      #expect(change.hasOtherFeed && !change.hasOtherLog)
    }
  }
}
