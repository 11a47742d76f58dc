import CLinux
import Dispatch
import Events
import Glibc
import Reactive
import ReplayLog
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// What a request gets: endpoints, parameters, tags, errors, access.
@Suite struct HTTPRequestTests {
  private static func isJSON(_ configuration: inout StreamConfiguration) { configuration.type = "application/json" }
  private static func isText(_ configuration: inout StreamConfiguration) { configuration.type = "text/plain" }

  // MARK: Endpoints

  @Test func theNewestEventHasATagATimeAndTheStreamsOwnType() async throws {
    try await withServer { harness in
      let source = try harness.add("weather/berlin", Self.isJSON)
      let client = try HTTPWireClient(harness)
      client.get("/streams/weather/berlin")
      let none = try client.response()
      #expect(none.status == 204 && none["Content-Length"] == nil && none["Content-Type"] == nil)
      source.send(Array("{\"a\":1}".utf8), Array("{\"a\":2}".utf8))
      client.get("/streams/weather%2fberlin")
      #expect(try client.response().status == 400)
      let again = try HTTPWireClient(harness)
      again.get("/streams/weather/%62erlin")
      let response = try again.response()
      #expect(response.status == 200 && response.text == "{\"a\":2}")
      #expect(response["Content-Type"] == "application/json" && response["Cache-Control"] == "no-cache")
      #expect(response["Vary"] == "Accept" && response["X-Content-Type-Options"] == "nosniff")
      #expect(response["Content-Security-Policy"] == "default-src 'none'; style-src 'unsafe-inline'; sandbox")
      #expect(response["Last-Modified"]?.hasSuffix(" GMT") == true && response["Date"] != nil)
      let tag = try #require(response["ETag"])
      #expect(tag.hasPrefix("\"") && UInt64(tag.dropFirst().dropLast()) != nil)
      let gzip = tag.dropLast() + "-gzip\""
      for field in [tag, "W/" + tag, "\"x\", " + tag, "*", gzip, "W/" + gzip, "\"x-gzip\", " + gzip] {
        again.get("/streams/weather/berlin", "If-None-Match: \(field)")
        let unchanged = try again.response()
        #expect(unchanged.status == 304 && unchanged["ETag"] == tag && unchanged["Content-Length"] == nil)
      }
      again.get("/streams/weather/berlin", "If-None-Match: \"1\"")
      #expect(try again.response().status == 200)
    }
  }

  @Test func healthAndTheServersOwnStreams() async throws {
    try await withServer { harness in
      _ = try harness.add("s")
      let client = try HTTPWireClient(harness)
      client.get("/healthz")
      let health = try client.response()
      #expect(health.status == 200 && health.text == "ok\n" && health["Cache-Control"] == "no-store")
      for path in ["/streams", "/streams/$streams", "/stats", "/streams/%24stats"] {
        client.get(path)
        let response = try client.response()
        #expect(response.status == 200 && response["Content-Type"] == "application/json", "\(path)")
        #expect(response["ETag"] != nil && response.text.contains("\"name\":\"s\""), "\(path)")
      }
      client.get("/streams?as=sse&count=1")
      let events = ParsedEvent.all(in: try client.response().text)
      #expect(events.count == 2 && events[1] == ParsedEvent("end", id: events[0].id, #"{"reason":"complete"}"#))
    }
  }

  @Test(arguments: [
    ("GET", "/nothing", 404), ("GET", "/streams/", 404), ("GET", "/streams/nope", 404), ("GET", "/streams/a,", 404),
    ("GET", "/streams/../healthz", 400), ("GET", "/streams/./s", 400), ("GET", "/streams/%2e%2e/s", 400),
    ("GET", "/streams/s%00", 400), ("GET", "/streams/s%0a", 400), ("GET", "/streams/s%zz", 400),
    ("DELETE", "/streams/s", 405), ("PUT", "/healthz", 405), ("POST", "/streams", 405), ("POST", "/healthz", 405),
    ("GET", "/streams/s?as=xml", 400), ("GET", "/streams/s?nope=1", 400), ("GET", "/streams/s?as=sse&as=sse", 400),
    ("GET", "/streams/s?wait=61s", 400), ("GET", "/streams/s?wait=2m", 400), ("GET", "/streams/s?wait=-1s", 400),
    ("GET", "/streams/s?wait=1", 400), ("GET", "/streams/s?as=sse&wait=1s", 400), ("GET", "/streams/s?count=1", 400),
    ("GET", "/streams/s?as=sse&last=0", 400), ("GET", "/streams/s?as=sse&last=+1", 400),
    ("GET", "/streams/s?as=sse&last=1&from=new", 400), ("GET", "/streams/s?as=sse&from=-0", 400),
    ("GET", "/streams/s?as=sse&count=0", 400), ("GET", "/streams/s?as=sse&count=x", 400),
    ("GET", "/streams/s?as=sse&follow=2", 400), ("GET", "/streams/s?as=sse&on_lag=x", 400),
    ("GET", "/streams/s,t?as=raw&from=new,new,new", 400), ("GET", "/streams/s?as=raw&from=new,new", 400),
    ("GET", "/streams/s,t?as=raw&from=new,", 400),
    ("GET", "/streams/s?as=sse&from=x", 400), ("GET", "/streams/s?as=raw&lastEventID=x", 400),
    ("GET", "/streams/s?as=raw&lastEventID=1,x", 400), ("GET", "/streams/s?as=ndjson", 406),
    ("GET", "/streams/s?as=json-seq", 406), ("GET", "/streams/s?as=raw&ids=1", 406), ("GET", "/streams/s?as=sse", 406),
    ("GET", "/streams/s,s?as=sse", 400), ("GET", "/streams/s,t?as=raw&count=1", 400), ("GET", "/rsocket", 426),
    ("POST", "/streams/s", 405),
  ]) func aMistakeIsAProblemInJSON(method: String, target: String, status: Int) async throws {
    try await withServer { harness in
      for name in ["s", "t"] { _ = try harness.add(name) { $0.type = "application/octet-stream" } }
      let client = try HTTPWireClient(harness)
      client.request(method, target, [], body: method == "POST" ? [1] : nil)
      let response = try client.response()
      #expect(response.status == status && response.isComplete, "\(response)")
      #expect(response["Content-Type"] == "application/problem+json" && response["Cache-Control"] == "no-store")
      for part in ["\"type\":\"", "\"title\":\"", "\"status\":\(status)", "\"detail\":\""] {
        #expect(response.text.contains(part), "\(response)")
      }
      // An event stream cannot have bytes, whatever is added.
      #expect(response.text.contains("add ids=1") == (status == 406 && target.contains("json")), "\(response)")
      if status == 405 { #expect(response["Allow"]?.contains("GET") == true) }
      #expect(harness.server.statistics.subscribers == 0)
    }
  }

  @Test func aResponseHasAtMost64Streams() async throws {
    try await withServer { harness in
      let names = (0..<65).map { "s\($0)" }
      for name in names { _ = try harness.add(name, Self.isText) }
      let client = try HTTPWireClient(harness)
      let tooMany = try client.fetch("/streams/" + names.joined(separator: ",") + "?as=sse")
      #expect(tooMany.status == 400 && tooMany.text.contains("at most 64 streams"), "\(tooMany)")
      let most = try client.fetch("/streams/" + names.dropLast().joined(separator: ",") + "?as=sse&follow=0")
      #expect(most.status == 200 && most.isComplete)
      harness.eventually { harness.server.statistics.subscribers == 0 }
    }
  }

  @Test func anUnknownParameterIsNamed() async throws {
    try await withServer { harness in
      _ = try harness.add("s")
      let client = try HTTPWireClient(harness)
      client.get("/streams/s?as=sse&colour=red")
      let colour = try client.response().text
      #expect(colour.contains(#"unknown parameter \"colour\""#) && !colour.contains("did you mean"))
      client.get("/streams/s?as=sse&form=latest")
      #expect(try client.response().text.contains(#"unknown parameter \"form\"; did you mean \"from\"?"#))
      client.get("/rsocket?a=b")
      #expect(try client.response().text.contains(#"unknown parameter \"a\""#))
    }
  }

  // MARK: HEAD and OPTIONS

  @Test func aHEADHasTheHeadOfGETAndNoSideEffects() async throws {
    try await withServer { harness in
      let resting = try harness.add("resting", start: .fromFirstSubscriber, Self.isText)
      let source = try harness.add("s", Self.isText)
      source.send(Array("abc".utf8))
      let client = try HTTPWireClient(harness)
      for target in ["/streams/resting", "/streams/resting?wait=60s"] {
        client.request("HEAD", target)
        #expect(try client.response(isToHead: true).status == 204)
      }
      client.request("HEAD", "/streams/s")
      var response = try client.response(isToHead: true)
      #expect(response.status == 200 && response["Content-Length"] == "3" && response["ETag"] != nil)
      client.request("HEAD", "/streams/nope")
      response = try client.response(isToHead: true)
      #expect(response.status == 404)
      client.request("HEAD", "/healthz")
      #expect(try client.response(isToHead: true)["Content-Length"] == "3")
      client.request("HEAD", "/streams/resting?as=sse")
      response = try client.response(isToHead: true)
      #expect(response.status == 200 && response["Content-Type"] == "text/event-stream")
      #expect(try client.isAtEnd())
      #expect(resting.subscriptions == 0 && harness.server.statistics.subscribers == 0)
    }
  }

  @Test func anOPTIONSTellsTheMethods() async throws {
    try await withServer { harness in
      try harness.addPublished("s")
      _ = try harness.add("clock")
      let client = try HTTPWireClient(harness)
      for (target, methods) in [
        ("/streams/s", "GET, HEAD, POST, OPTIONS"), ("/streams/clock", "GET, HEAD, OPTIONS"),
        ("/streams/none", "GET, HEAD, OPTIONS"), ("/healthz", "GET, HEAD, OPTIONS"),
        ("/streams/s,t", "GET, HEAD, OPTIONS"), ("/streams/$config", "GET, HEAD, OPTIONS"),
        ("*", "GET, HEAD, POST, PUT, DELETE, OPTIONS"),
      ] {
        client.request("OPTIONS", target)
        let response = try client.response()
        #expect(response.status == 204 && response["Allow"] == methods && response["Content-Length"] == nil)
      }
    }
  }

  @Test func aPageOfAnAllowedOriginMayAskForTheMethods() async throws {
    var limits = ServerLimits(workers: 1)
    limits.httpOrigins = ["https://a.example"]
    try await withServer(limits) { harness in
      try harness.addPublished("s")
      let client = try HTTPWireClient(harness)
      let allowed = try client.fetch("/streams/s", method: "OPTIONS", "Origin: https://a.example")
      #expect(allowed.status == 204 && allowed["Access-Control-Allow-Origin"] == "https://a.example")
      #expect(allowed["Access-Control-Allow-Methods"] == "GET, HEAD, POST, OPTIONS")
      let fields = try #require(allowed["Access-Control-Allow-Headers"]).split(separator: ", ")
      for field in ["Cache-Control", "Content-Type", "If-None-Match", "Last-Event-ID", "X-Requested-With"] {
        #expect(fields.contains(Substring(field)), "\(field)")
      }
      let plain = try client.fetch("/streams/s", method: "OPTIONS")
      #expect(plain.status == 204 && plain["Access-Control-Allow-Methods"] == nil)
    }
  }

  @Test func aPageOfAnAllowedOriginMayReadTagsPositionsAndTimes() async throws {
    var limits = ServerLimits(workers: 1)
    limits.httpOrigins = ["https://a.example"]
    try await withServer(limits) { harness in
      let source = try harness.add("s", Self.isText)
      source.send([65])
      let client = try HTTPWireClient(harness)
      let origin = "Origin: https://a.example"
      for target in ["/streams/s", "/streams/none", "/streams/s?as=sse&follow=0"] {
        let exposed = try client.fetch(target, origin)["Access-Control-Expose-Headers"]
        #expect(exposed == "ETag, Last-Event-ID, Retry-After", "\(target)")
      }
      let other = try HTTPWireClient(harness)
      #expect(try other.fetch("/streams/s")["Access-Control-Expose-Headers"] == nil)
      let refused = try other.fetch("/streams/s", "Origin: https://b.example")
      #expect(refused.status == 403 && refused["Access-Control-Expose-Headers"] == nil)
    }
  }

  // MARK: Hosts

  @Test(arguments: ["%2Frun%2Fstreamd.sock", "/run/streamd.sock", "unix:/run/streamd.sock", "", "docker", ":0"])
  func aClientOfAUnixSocketMayWriteItsPathAsTheHost(host: String) async throws {
    try await withServer { harness in
      let client = try HTTPWireClient(harness)
      client.send("GET /healthz HTTP/1.1\r\nHost: \(host)\r\n\r\n")
      #expect(try client.response().status == 200)
      // As over TCP, where a page of the web may have chosen the name.
      let other = try HTTPWireClient(harness.server, user: nil)
      other.send("GET /metrics HTTP/1.1\r\nHost: \(host)\r\n\r\n")
      #expect(try other.response().status == 403)
    }
  }

  // MARK: Waiting

  /// A client that asks again and again would otherwise get the same event, or nothing, as fast as it asks.
  @Test func aRequestAlsoWaitsForAStreamThatHasFinished() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      let source = try harness.add("s", Self.isText)
      source.send([65])
      let client = try HTTPWireClient(harness)
      let tag = try #require(try client.fetch("/streams/s")["ETag"])
      client.get("/streams/s?wait=60s")
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.finish()
      #expect(try client.response().status == 204)
      #expect(try client.fetch("/streams/s").text == "A")
      #expect(try client.fetch("/streams/s?wait=60s", "If-None-Match: \"1\"").text == "A")
      #expect(try client.fetch("/streams/s?wait=10ms").status == 204)
      #expect(try client.fetch("/streams/s?wait=10ms", "If-None-Match: \(tag)").status == 304)
      client.get("/streams/s?wait=60s")
      #expect(try HTTPWireClient(harness).fetch("/healthz").status == 200 && !client.wire.hasInput)
    }
  }

  @Test func aRequestWaitsForANewerEvent() async throws {
    try await withServer { harness in
      let source = try harness.add("s", Self.isText)
      let client = try HTTPWireClient(harness)
      #expect(try client.fetch("/streams/s?wait=10ms").status == 204)
      client.get("/streams/s?wait=60s")
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send([65])
      let first = try client.response()
      #expect(first.status == 200 && first.text == "A")
      harness.eventually { harness.server.statistics.subscribers == 0 }
      let tag = try #require(first["ETag"])
      // There is news already for a client with another tag.
      client.get("/streams/s?wait=60s", "If-None-Match: \"1\"")
      #expect(try client.response().text == "A")
      client.get("/streams/s?wait=60s", "If-None-Match: \(tag)")
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send([66], [67])
      #expect(try client.response().text == "C")
      // `*` names what there was, and not what comes.
      client.get("/streams/s?wait=60s", "If-None-Match: *")
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send([68])
      let newer = try client.response()
      #expect(newer.status == 200 && newer.text == "D", "\(newer)")
      client.get("/streams/s?wait=10ms")
      let late = try client.response()
      #expect(late.status == 204 && late["Content-Length"] == nil)
      client.get("/streams/s?wait=10ms", "If-None-Match: *")
      let unchanged = try client.response()
      #expect(unchanged.status == 304 && unchanged["ETag"] == newer["ETag"] && unchanged["Vary"] == "Accept")
      client.get("/healthz")
      #expect(try client.response().status == 200)
      #expect(harness.server.statistics.subscribers == 0)
    }
  }

  @Test func aRequestWaitsForAChangeOfTheCatalogue() async throws {
    try await withServer { harness in
      _ = try harness.add("s", Self.isText)
      let client = try HTTPWireClient(harness)
      let tag = try #require(try client.fetch("/streams")["ETag"])
      #expect(try client.fetch("/streams", "If-None-Match: \(tag)").status == 304)
      #expect(try client.fetch("/streams", "If-None-Match: *").status == 304)
      #expect(try client.fetch("/streams?wait=100ms", "If-None-Match: \(tag)").status == 304)
      #expect(try client.fetch("/streams?wait=100ms").status == 204)
      for field in ["If-None-Match: \(tag)", "If-None-Match: *", "X: y"] {
        client.get("/streams?wait=60s", field)
        usleep(10_000)  // the change may come before the request, too
        let name = "new \(field.utf8.count)"
        if field != "X: y" { _ = try harness.add(name, Self.isText) }
        guard field != "X: y" else {
          _ = harness.server.change([], removing: ["s"])
          #expect(try !client.response().text.contains("\"name\":\"s\""))
          break
        }
        let response = try client.response()
        #expect(response.status == 200 && response.text.contains(name) && response["ETag"] != tag, "\(response)")
      }
    }
  }

  @Test func whatAWaitEndsWithWhenTheStreamEnds() async throws {
    try await withServer { harness in
      let removed = try HTTPWireClient(harness)
      let revoked = try HTTPWireClient(harness)
      _ = try harness.add("revoked", Self.isText)
      revoked.get("/streams/revoked?wait=60s")
      let (finished, failed) = (try HTTPWireClient(harness), try HTTPWireClient(harness))
      let sources = try ["removed", "finished", "failed"].map { try harness.add($0, Self.isText) }
      for (name, client) in [("removed", removed), ("finished", finished), ("failed", failed)] {
        client.get("/streams/\(name)?wait=60s")
      }
      harness.eventually { harness.server.statistics.subscribers == 4 }
      var configuration = StreamConfiguration(name: "revoked", start: .always)
      configuration.read = AccessRules([.user(4711)])
      _ = harness.server.change([StreamChange(configuration)], removing: ["removed"])
      #expect(try revoked.response().status == 403)
      sources[1].finish()
      sources[2].finish(.failure(StreamFailure("it broke")))
      #expect(try removed.response().status == 404)
      #expect(try finished.response().status == 204)
      let failure = try failed.response()
      #expect(failure.status == 502 && failure.text.contains("it broke"))
      failed.get("/streams/failed")
      #expect(try failed.response().status == 502)
      removed.get("/streams/removed")
      #expect(try removed.response().status == 404)
    }
  }

  @Test func aServerWithAStuckLoopIsNotHealthy() async throws {
    var limits = ServerLimits(workers: 2)
    limits.http.stuckTime = .milliseconds(200)
    try await withServer(limits) { harness in
      let clients = try (0..<2).map { _ in try HTTPWireClient(harness) }
      for client in clients { #expect(try client.fetch("/healthz").status == 200) }
      let released = DispatchSemaphore(value: 0)
      harness.server.loops[1].execute { released.wait() }
      // Connections are on the loops in turn: the first one is on the loop that turns.
      harness.eventually { (try? clients[0].fetch("/healthz").status) == 503 }
      #expect(try clients[0].fetch("/healthz").text == "an event loop is stuck\n")
      released.signal()
      harness.eventually { (try? clients[0].fetch("/healthz").status) == 200 }
      #expect(try clients[1].fetch("/healthz").status == 200)
    }
  }

  // MARK: Connections

  /// Over TCP, for every request; the kernel's buffer only for responses whose body is events.
  @Test func optionsOfTheSocket() async throws {
    func option(_ descriptor: CInt, _ level: CInt, _ option: CInt) -> CInt {
      var (value, size) = (0 as CInt, socklen_t(MemoryLayout<CInt>.size))
      getsockopt(descriptor, level, option, &value, &size)
      return value
    }
    try await withServer { harness in
      let source = try harness.add("s", Self.isText)
      source.send([65])
      let streaming = try HTTPWireClient(harness.server, user: getuid())
      streaming.get("/streams/s?as=raw")
      _ = try streaming.head()
      #expect(option(streaming.serverEnd, SOL_SOCKET, SO_SNDBUF) == 256 << 10)
      let listener = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
      let client = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
      defer { close(listener) }
      var address = sockaddr_in()
      address.sin_family = sa_family_t(AF_INET)
      address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
      var size = socklen_t(MemoryLayout<sockaddr_in>.size)
      withUnsafeMutablePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
          #expect(bind(listener, $0, size) == 0 && listen(listener, 1) == 0 && getsockname(listener, $0, &size) == 0)
          #expect(connect(client, $0, size) == 0)
        }
      }
      let accepted = accept4(listener, nil, nil, CInt(SOCK_NONBLOCK.rawValue))
      harness.server.loops[0].execute { harness.server.accept(OwnedDescriptor(accepted), nil) }
      let overTCP = HTTPWireClient(WireClient(taking: client))
      #expect(try overTCP.fetch("/healthz").status == 200)
      #expect(option(accepted, CInt(IPPROTO_TCP), TCP_NODELAY) != 0)
      #expect(option(accepted, CInt(IPPROTO_TCP), TCP_USER_TIMEOUT) == 30_000)
      #expect(option(accepted, SOL_SOCKET, SO_KEEPALIVE) != 0)
    }
  }

  @Test func emptyLinesMayPrecedeTheFirstRequest() async throws {
    try await withServer { harness in
      for lines in ["\r\n", "\r\n\r\n"] {
        let client = try HTTPWireClient(harness)
        client.send(lines + "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        #expect(try client.response().text == "ok\n")
      }
      let client = try HTTPWireClient(harness)
      client.send("\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
      #expect(try client.response().status == 400)
    }
  }

  @Test(arguments: ["get", "Get", "post"]) func aMethodInSmallLettersIsRefusedAsHTTP(method: String) async throws {
    try await withServer { harness in
      let client = try HTTPWireClient(harness)
      client.request(method, "/healthz")
      let response = try client.response()
      #expect(response.status == 405 && response["Allow"] == "GET, HEAD, OPTIONS")
    }
  }

  @Test(arguments: [("Content-Length: 0", ""), ("Content-Length: 00", "")])
  func aGETWithALengthOfZeroKeepsTheConnection(field: String, body: String) async throws {
    try await withServer { harness in
      let client = try HTTPWireClient(harness)
      for method in ["GET", "OPTIONS", "DELETE", "GET"] {
        client.request(method, "/healthz", [field])
        let response = try client.response()
        #expect(
          response["Connection"] == "keep-alive" && response["Keep-Alive"] == "timeout=60"
            && response.status == (method == "GET" ? 200 : method == "OPTIONS" ? 204 : 405))
      }
    }
  }

  @Test(arguments: [
    "_=1700000000", "_t=1", "_ts=1", "_dc=1700000000", "1700000000000", "org.htmx.cache-buster=true",
    "dojo.preventCache=1700000000", "r=0.5", "_=1&_=2",
  ])
  func parametersAgainstCachesAreIgnored(parameter: String) async throws {
    try await withServer { harness in
      _ = try harness.addPublished("p") { $0.type = "text/plain" }
      let client = try HTTPWireClient(harness)
      client.post("/streams/p?\(parameter)", "1")
      #expect(try client.response().text == "{\"accepted\":1}\n")
      for target in ["/streams/p", "/streams", "/stats", "/metrics", "/healthz", "/"] {
        client.get("\(target)?\(parameter)")
        #expect(try client.response().status == 200, "\(target)")
      }
      client.get("/streams/p?as=sse&follow=0&\(parameter)&")
      #expect(try client.response().text.contains("data: 1\n"))
    }
  }

  @Test(arguments: ["application/ndjson", "application/jsonl", "application/jsonlines", "application/x-jsonlines"])
  func theFormatNDJSONMayBeAskedForUnderEachOfItsNames(type: String) async throws {
    try await withServer { harness in
      let source = try harness.add("s", Self.isJSON)
      source.send([UInt8(ascii: "1")])
      for accept in [type, "\(type), */*", "application/json;q=0.5, \(type)"] {
        let client = try HTTPWireClient(harness)
        client.get("/streams/s?follow=0", "Accept: \(accept)")
        let response = try client.response()
        #expect(response["Content-Type"] == "application/x-ndjson" && response.text == "1\n", "\(accept)")
      }
      let client = try HTTPWireClient(harness)
      #expect(try client.fetch("/streams/s,t", "Accept: \(type)").status == 404)
    }
  }

  @Test func requestsAreAnsweredInTheirOrderOnOneConnection() async throws {
    try await withServer { harness in
      let source = try harness.add("s", Self.isText)
      source.send([65])
      let client = try HTTPWireClient(harness)
      let one = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /streams/s HTTP/1.1\r\nHost: localhost\r\n\r\n"
      let wait = "GET /streams/s?wait=60s HTTP/1.1\r\nHost: localhost\r\n\r\n"
      let text = String(repeating: one, count: 100) + wait + one
      // In every way that the network may cut it.
      var bytes = Array(text.utf8)[...]
      var size = 1
      while !bytes.isEmpty {
        client.send(Array(bytes.prefix(size)))
        bytes = bytes.dropFirst(size)
        size = size % 97 + 1
      }
      for _ in 0..<100 {
        #expect(try client.response().text == "ok\n")
        #expect(try client.response().text == "A")
      }
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send([66])
      #expect(try client.response().text == "B")
      #expect(try client.response().text == "ok\n")
      #expect(try client.response().text == "B")
      client.get("/healthz", "Connection: close")
      #expect(try client.response()["Connection"] == "close")
      #expect(try client.isAtEnd())
      harness.eventually { harness.server.statistics.connections == 0 }
    }
  }

  @Test func aPeerThatSendsNothingMoreGetsItsResponses() async throws {
    try await withServer { harness in
      let source = try harness.add("s", Self.isText)
      source.send([65])
      let client = try HTTPWireClient(harness)
      client.get("/streams/s")
      let tag = try #require(try client.response()["ETag"])
      client.get("/streams/s?wait=60s", "If-None-Match: \(tag)")
      client.get("/streams/s")
      client.get("/healthz")
      client.closeWriting()
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send([66])
      for text in ["B", "B", "ok\n"] {
        let response = try client.response()
        #expect(response.text == text, "\(response)")
      }
      #expect(try client.isAtEnd())
      let stream = try HTTPWireClient(harness)
      stream.get("/streams/s?as=sse&from=replay&count=2")
      stream.closeWriting()
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send([67], [68])
      #expect(try ParsedEvent.all(in: stream.response().text).map(\.type).suffix(1) == ["end"])
      harness.eventually { harness.server.statistics.connections == 0 }
    }
  }

  @Test func aRequestBehindOneForALargeEventIsAnswered() async throws {
    try await withServer { harness in
      let source = try harness.add("s") { $0.limits = .init(events: 8, bytes: 64 << 20) }
      let event = [UInt8](repeating: 65, count: 3_000_000)
      source.send(event)
      let client = try HTTPWireClient(harness.path, receiveBuffer: 4096)
      client.send(String(repeating: "GET /streams/s HTTP/1.1\r\nHost: a\r\n\r\n", count: 3))
      client.get("/healthz")
      for _ in 0..<3 { #expect(try client.response().body == event) }
      #expect(try client.response().text == "ok\n")
    }
  }

  @Test func aClientOfHTTP10GetsNoChunks() async throws {
    try await withServer { harness in
      let source = try harness.add("s") { ($0.type, $0.replay) = ("text/plain", 10) }
      source.send([65], [66])
      let client = try HTTPWireClient(harness)
      client.send("GET /streams/s HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
      let kept = try client.response()
      #expect(kept.text == "B" && kept["Connection"] == "keep-alive" && kept["Transfer-Encoding"] == nil)
      client.send("GET /streams/s?as=raw&follow=0 HTTP/1.0\r\n\r\n")
      let streamed = try client.response()
      #expect(streamed.text == "A\nB\n" && streamed["Transfer-Encoding"] == nil && streamed["Content-Length"] == nil)
      let other = try HTTPWireClient(harness)
      other.send("GET /streams/s HTTP/1.0\r\n\r\n")
      #expect(try other.response().text == "B")
      #expect(try other.isAtEnd())
    }
  }

  @Test(arguments: [
    "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\nHost: a\n\n",
    "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
    "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n",
    "POST /streams/p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST /streams/p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "POST /streams/p HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc",
    "POST /streams/p HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\nabc",
    "POST /streams/p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "POST /streams/p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "POST /streams/p HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST /streams/p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
    "POST /streams/p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    "POST /streams/p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nab\r\n0\r\n\r\n",
    "POST /streams/p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nab\r\n0\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
  ]) func aRequestThatOthersCouldReadInAnotherWayEndsTheConnection(bytes: String) async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let client = try HTTPWireClient(harness)
      client.send(bytes + "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
      let response = try client.response()
      #expect(
        response.status == (bytes.hasPrefix("PRI") ? 505 : 400) && response["Connection"] == "close", "\(response)")
      #expect(try client.isAtEnd())
      harness.eventually { harness.server.statistics.publishers == 0 }
      #expect(harness.server.statistics.eventsIn == 0)
    }
  }

  @Test(arguments: [
    ("HEAD / HTTP/1.1\r\n\r\n", 400), ("\r\n\r\nHEAD / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    ("HEAD / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", 400), ("HEAD / HTTP/2.0\r\n\r\n", 505), ("HEAD  / HTTP/1.1\r\n", 400),
    ("HEAD /" + String(repeating: "a", count: 9000), 414),
  ]) func aResponseToAMalformedHEADHasNoBody(request: String, status: Int) async throws {
    try await withServer { harness in
      for isInPieces in [false, true] {
        let client = try HTTPWireClient(harness)
        #expect(try client.fetch("/healthz").status == 200)  // empty lines may follow a request
        if isInPieces { for byte in request.utf8 { client.send([byte]) } } else { client.send(request) }
        let response = try client.response(isToHead: true)
        #expect(response.status == status && response["Content-Length"] != nil, "\(response)")
        #expect(try client.isAtEnd())
      }
    }
  }

  @Test func aHeadThatIsCutOffIsAnswered() async throws {
    try await withServer { harness in
      for (text, isHead) in [
        ("G", false), ("GET /healthz HTTP/1.1\r\nHo", false), ("HEAD /healthz HTTP/1.1\r\n", true),
      ] {
        let client = try HTTPWireClient(harness)
        #expect(try client.fetch("/healthz").status == 200)
        client.send(text)
        client.closeWriting()
        let response = try client.response(isToHead: isHead)
        #expect(response.status == 400 && (isHead || response.text.contains("is cut off")), "\(response)")
        #expect(try client.isAtEnd())
      }
      harness.eventually { harness.server.statistics.connections == 0 }
    }
  }

  @Test func longHeadsAreRefused() async throws {
    try await withServer { harness in
      for (text, status) in [
        ("GET /" + String(repeating: "a", count: 8200), 414),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: " + String(repeating: "a", count: 17000), 431),
        ("GET / HTTP/1.1\r\nHost: a\r\n" + String(repeating: "X: a\r\n", count: 101) + "\r\n", 431),
      ] {
        let client = try HTTPWireClient(harness)
        client.send(text)
        #expect(try client.response().status == status)
        #expect(try client.isAtEnd())
      }
    }
  }

  // MARK: Access

  @Test func aRequestForAnotherHostOrOfAnotherSiteIsReportedWithTheKey() async throws {
    try await withServer { harness in
      for (host, field, reason) in [
        ("evil.example", "A: b", "\"evil.example\" is not served: add it to server.hosts"),
        (String(repeating: "a", count: 300), "A: b", "another host is not served: add it to server.hosts"),
        ("", "A: b", "this host is not served: add it to server.hosts"),
        (
          "localhost", "Origin: https://evil.example",
          "a page of \"https://evil.example\" made this request: add its origin"
        ),
        ("localhost", "Sec-Fetch-Site: cross-site", "a page of another site made this request: add its origin"),
      ] {
        let client = try HTTPWireClient(harness.server, user: nil)
        client.send("GET /streams HTTP/1.1\r\nHost: \(host)\r\n\(field)\r\n\r\n")
        #expect(try client.response().status == 403)
        guard case .clientRefused(_, nil, let said)? = harness.reports.last else {
          Issue.record("\(host) \(field): not reported")
          continue
        }
        #expect(said.hasPrefix(reason))
      }
      #expect(harness.server.statistics.refused == 5)
    }
  }

  @Test func hostsThatCouldBeAnothersAreRefused() async throws {
    var limits = ServerLimits(workers: 1)
    limits.httpHosts = ["streams.example.org"]
    limits.httpOrigins = ["https://dashboard.example.org"]
    try await withServer(limits) { harness in
      for (user, host, status) in [
        (0 as UInt32?, "localhost", 200), (0, "localhost:8080", 200), (0, "a.localhost", 200), (0, "127.0.0.1", 200),
        (0, "[::1]:80", 200), (0, "", 200), (0, "anything", 200), (0, "streams.example.org", 200),
        (0, "STREAMS.example.org:9", 200), (0, "evil.example", 403), (nil, "", 200), (nil, "anything", 403),
        (nil, "localhost", 200), (nil, "10.1.2.3:80", 200), (nil, "evil.example", 403),
      ] {
        let client = try HTTPWireClient(harness.server, user: user)
        client.send("GET /healthz HTTP/1.1\r\nHost: \(host)\r\n\r\n")
        let response = try client.response()
        #expect(response.status == status, "\(host) \(response)")
        if status == 403 { #expect(response.text.contains("server.hosts")) }
      }
      for (fields, status) in [
        (["Sec-Fetch-Site: same-origin"], 200), (["Sec-Fetch-Site: none"], 200), (["Sec-Fetch-Site: cross-site"], 403),
        (["Sec-Fetch-Site: same-site"], 403), (["Origin: http://localhost"], 200), (["Origin: null"], 403),
        (["Origin: http://evil.example"], 403), (["Origin: https://dashboard.example.org"], 200),
        (["Sec-Fetch-Site: cross-site", "Origin: https://dashboard.example.org"], 200),
      ] {
        let client = try HTTPWireClient(harness)
        client.request("GET", "/healthz", fields)
        let response = try client.response()
        #expect(response.status == status, "\(fields) \(response)")
        #expect(
          response["Access-Control-Allow-Origin"]
            == (fields.last!.hasSuffix("dashboard.example.org") ? "https://dashboard.example.org" : nil))
        client.request(
          "GET", "/rsocket",
          fields + [
            "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
          ])
        if status == 403 {
          #expect(try client.response().status == 403)
        } else if fields.last!.hasSuffix("dashboard.example.org") {
          let shared = try HTTPWireClient(harness)
          shared.request("GET", "/streams/$streams", fields)
          let varied = try shared.response().fields.filter { $0.name == "vary" }.map(\.value)
          #expect(varied == ["Origin", "Accept"])
        } else {
          #expect(try client.head()?.status == 101)
        }
      }
    }
  }

  @Test func aClientReadsAndPublishesWhatItMayAndOverTCPWhatAllMay() async throws {
    try await withServer { harness in
      try harness.addPublished("mine") { ($0.read, $0.write) = (AccessRules([.user(7)]), AccessRules([.user(7)])) }
      try harness.addPublished("open") { ($0.read, $0.write) = (AccessRules(), AccessRules()) }
      for (user, mine, open) in [(7 as UInt32?, 200, 200), (8, 403, 200), (nil, 403, 200)] {
        let client = try HTTPWireClient(harness.server, user: user)
        for (name, status) in [("mine", mine), ("open", open)] {
          client.post("/streams/\(name)", "v")
          #expect(try client.response().status == status)
          if status == 403 {  // the body is not read
            #expect(try client.isAtEnd())
            let next = try HTTPWireClient(harness.server, user: user)
            for target in ["/streams/\(name)", "/streams/\(name)?as=sse&ids=1", "/streams/open,\(name)?as=sse"] {
              next.get(target)
              #expect(try next.response().status == 403)
            }
            break
          }
          client.get("/streams/\(name)")
          #expect(try client.response().text == "v")
        }
      }
    }
  }
}
