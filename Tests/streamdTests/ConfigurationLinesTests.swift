import StreamRuntime
import StreamSources
import TestSupport
import Testing

@testable import streamd

/// `socket` and `serial`.
struct ConfigurationLinesTests {
  private let folder: TemporaryFolder

  init() throws { folder = try TemporaryFolder(["login": "secret\n"]) }

  private func errors(in section: String, _ text: String) -> [String] {
    streamdTests.errors("[streams.s.\(section)]\n\(text)", credentials: folder.path)
  }

  @Test func aSocketHasAnAddressAndWhatIsSent() throws {
    let configuration = try parse(
      """
      [streams.a.socket]
      address = "tcp:localhost:2947"
      tls = true
      send = ["hello\\n", { credential = "login" }, "\\n"]
      idle_timeout = "30s"
      max_body = "64KiB"
      [streams.b]
      socket.address = "unix:/run/x.sock"
      socket.split = "none"
      [streams.c]
      socket.address = "udp:[ff05::1]:5000"
      [streams.d]
      socket.address = "tcp:[::1]:80"
      """, credentials: folder.path)
    var socket = Configuration.Socket()
    (socket.address, socket.tls) = (.tcp(host: "localhost", port: 2947), true)
    socket.messages = [.plain("hello\n"), .secret(Secret(name: "login", content: "secret")), .plain("\n")]
    (socket.idleTimeout, socket.maxBodyBytes) = (.seconds(30), 64 << 10)
    #expect(configuration.streams[0].source == .socket(socket))
    #expect(configuration.streams.map(\.source.kind) == Array(repeating: "socket", count: 4))
    let sockets = configuration.streams.compactMap { $0.source.section as? Configuration.Socket }
    #expect(sockets.map(\.hasLines) == [true, false, false, true])
    #expect(
      sockets.map(\.address.text) == [
        "tcp:localhost:2947", "unix:/run/x.sock", "udp:[ff05::1]:5000", "tcp:[::1]:80",
      ])
  }

  @Test func aSerialPortHasADeviceAndSettings() throws {
    let configuration = try parse(
      """
      [streams.s.serial]
      device = "/dev/ttyUSB0"
      baud = 115200
      data_bits = 7
      parity = "even"
      stop_bits = 2
      flow = "rts-cts"
      end = "cr"
      send = ["x"]
      """)
    var serial = Configuration.Serial()
    serial.settings = SerialSettings(device: "/dev/ttyUSB0")
    (serial.settings.baud, serial.settings.dataBits, serial.settings.parity) = (115_200, 7, .even)
    (serial.settings.stopBits, serial.settings.flow, serial.messages) = (2, .hardware, [.plain("x")])
    serial.end = "cr"
    #expect(configuration.streams[0].source == .serial(serial))
  }

  @Test(arguments: [
    "", "x", "tcp:", "tcp:h", "tcp:h:0", "tcp:h:65536", "tcp:[::1]", "tcp:::1:80", "tcp:h:80/x", "tcp::80",
    "tcp: h:80", "unix:x", "unix:", "udp:localhost:5000", "udp:0.0.0.0", "http:h:80", "tcp:[h]:80", "tcp:h:+80",
  ]) func anAddressHasItsForm(text: String) {
    let form = #"an address such as "tcp:localhost:2947", "unix:/run/x.sock" or "udp:0.0.0.0:5000""#
    #expect(
      errors(in: "socket", "address = \"\(text)\"") == [
        "test.toml:2: streams.s.socket.address: expected \(form), got \"\(text)\""
      ])
  }

  @Test(arguments: [
    ("address = \"unix:/s\"\ntelnet = true", "3: streams.s.socket.telnet: expected telnet only with an address of tcp"),
    ("address = \"unix:/s\"\ntls = true", "3: streams.s.socket.tls: expected tls only with an address of tcp"),
    (
      "address = \"tcp:h:1\"\nsplit = \"none\"",
      "3: streams.s.socket.split: expected lines: a TCP connection has no messages"
    ),
    (
      "address = \"tcp:h:1\"\nca_file = \"system\"",
      "3: streams.s.socket.ca_file: expected ca_file only with tls = true"
    ),
    (
      "address = \"udp:127.0.0.1:1\"\nsend = [\"x\"]",
      "3: streams.s.socket.send: expected no send with an address of udp, which only receives"
    ),
    (
      "address = \"unix:/s\"\nsplit = \"none\"\nmax_body = \"2MiB\"",
      "4: streams.s.socket.max_body: expected at most 1MiB for a message, got \"2MiB\""
    ),
    (
      "address = \"udp:[ff02::1]:5\"",
      "2: streams.s.socket.address: expected no address of one link (ff02:… or fe80:…), which would need an interface"
    ),
    ("address = \"udp:127.0.0.1:1\"\nend = \"cr\"", "3: streams.s.socket.end: expected end only with lines"),
    (
      "address = \"unix:/s\"\nend = \"CR\"",
      "3: streams.s.socket.end: expected \"cr\", \"lf\", \"crlf\", or one character up to U+00FF for that byte, got \"CR\""
    ),
    (
      "address = \"tcp:h:1\"\nserver_name = \"h\"",
      "3: streams.s.socket.server_name: expected server_name only with tls = true"
    ),
    (
      "address = \"unix:/s\"\nsplit = \"no\"",
      "3: streams.s.socket.split: expected \"lines\", \"none\" or \"json\", got \"no\""
    ),
  ]) func keysThatDoNotFitAreRefused(text: String, sentence: String) {
    #expect(errors(in: "socket", text) == ["test.toml:\(sentence)"])
  }

  @Test(arguments: [
    (
      "device = \"ttyS0\"", "2: streams.s.serial.device: expected an absolute path of at most 4095 bytes, got \"ttyS0\""
    ),
    (
      "device = \"/d\"\nbaud = 9601",
      "3: streams.s.serial.baud: expected a rate of serial ports such as 9600 or 115200, got 9601"
    ),
    ("device = \"/d\"\ndata_bits = 9", "3: streams.s.serial.data_bits: expected a whole number from 5 to 8, got 9"),
    (
      "device = \"/d\"\nparity = \"mark\"",
      "3: streams.s.serial.parity: expected \"none\", \"even\" or \"odd\", got \"mark\""
    ),
  ]) func aSerialPortsSettingsHaveLimits(text: String, sentence: String) {
    #expect(errors(in: "serial", text) == ["test.toml:\(sentence)"])
  }

  @Test func onePlaceBelongsToOneStream() {
    let text = """
      [streams.a]
      serial.device = "/d"
      [streams.b]
      serial.device = "/d"
      [streams.c]
      socket.address = "udp:127.0.0.1:1"
      [streams.d]
      socket.address = "udp:127.0.0.1:1"
      [streams.e]
      socket.address = "udp:239.0.0.1:1"
      [streams.f]
      socket.address = "udp:239.0.0.1:1"
      """
    let expected = "expected another one than that of"
    #expect(
      streamdTests.errors(text) == [
        "test.toml:4: streams.b.serial.device: \(expected) \"a\": one stream can have it",
        "test.toml:8: streams.d.socket.address: \(expected) \"c\": one stream can have it",
      ])
  }

  @Test func aPlaceOfOneHostIsNotSharedWithAFleet() {
    let cluster = "[cluster]\nname = \"f\"\nnats = [\"nats://h\"]\n"
    for (source, what) in [
      ("socket.address = \"unix:/s\"", "an address of unix or udp"), ("serial.device = \"/d\"", "serial"),
    ] {
      let found = streamdTests.errors("\(cluster)[streams.s]\nshare = \"fleet\"\n\(source)\n")
      #expect(
        found == ["test.toml:5: streams.s.share: expected no share = \"fleet\" with \(what): each host has its own"])
    }
    #expect(streamdTests.errors("\(cluster)[streams.s]\nshare = \"fleet\"\nsocket.address = \"tcp:h:1\"\n").isEmpty)
  }
}
