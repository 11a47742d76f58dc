import Testing

@testable import JetStream

@Suite struct NATSServerTests {
  @Test(arguments: [
    ("nats://a", "a:4222"), ("tls://a.example.org:1", "a.example.org:1"), ("nats://127.0.0.1:65535", "127.0.0.1:65535"),
    ("nats://[::1]:4222", "[::1]:4222"), ("nats://[::1]", "[::1]:4222"), ("nats://a/", "a:4222"),
    ("nats://a:", "a:4222"),
  ])
  func hostAndPortAreReadFromAURL(url: String, name: String) {
    #expect(NATSServer(url)?.name == name)
  }

  @Test(arguments: [
    "", "a", "nats:a", "http://a", "nats://", "nats://:1", "nats://a:0", "nats://a:65536", "nats://a:+1", "nats://a:1x",
    "nats://a:1/b", "nats://[::1", "nats://[]:1", "nats://[::1]1", "nats://me@a", "nats://a b", "nats://a\r\nPING",
    "nats://ä",
  ])
  func anythingElseIsNoServer(url: String) {
    #expect(NATSServer(url) == nil)
  }

  @Test func keySigns() throws {
    let key = try #require(NATSKey(userSeed: "SUAAGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGA6BEM"))
    #expect(key.signature(of: [1])?.count == 64)
    #expect(key.signature(of: [1]) != key.signature(of: [2]))
    #expect(key.signature(of: [1]) == key.signature(of: [1]))
  }

  @Test(arguments: [
    "", "SU", "SUAAGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGA6BE",
    "sUAAGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGA6BEM",
    "SUAAGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGA6BEMA",
    "SUAAGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGA6BEN",
    "SAAAGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGAYDAMBQGA6BEM",
  ])
  func malformedSeedIsNoKey(seed: String) {
    #expect(NATSKey(userSeed: seed) == nil)
  }

  @Test func base64ForURLsHasNoPadding() {
    #expect(Base64.encodedForURL([]) == "")
    #expect(Base64.encodedForURL([0xFB]) == "-w")
    #expect(Base64.encodedForURL([0xFB, 0xFF]) == "-_8")
    #expect(Base64.encodedForURL([0xFB, 0xFF, 0x00, 0x41]) == "-_8AQQ")
  }
}
