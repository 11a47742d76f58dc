import EventLoop
import Foundation
import Reactive
import StreamClient
import Synchronization
import Testing

/// A folder for one daemon: its configuration, its socket, what it says.
final class DaemonFolder: Sendable {
  let path: String
  var configuration: String { path + "/streamd.toml" }
  var socket: String { path + "/s" }
  var log: String { path + "/log" }

  init() throws {
    var template = Array("/tmp/streamd-test-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { throw SystemError("mkdtemp") }
    path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  deinit { try? FileManager.default.removeItem(atPath: path) }

  func write(_ configuration: String) throws {
    try configuration.write(toFile: self.configuration, atomically: true, encoding: .utf8)
  }
}

/// The program, where the build left it beside the tests.
let streamdProgram = Bundle.main.executableURL!.deletingLastPathComponent().appendingPathComponent("streamd")

/// Runs the program to its end.
func run(_ arguments: [String]) throws -> (status: Int32, output: String) {
  let process = Process()
  process.executableURL = streamdProgram
  process.arguments = arguments
  let pipe = Pipe()
  process.standardOutput = pipe
  process.standardError = pipe
  try process.run()
  let output = pipe.fileHandleForReading.readDataToEndOfFile()
  process.waitUntilExit()
  return (process.terminationStatus, String(decoding: output, as: UTF8.self))
}

/// A daemon of its own with a stream `ticks`, serving once `init` returns.
final class DaemonProcess: @unchecked Sendable {  // the process is started and ended by one thread
  private let folder: DaemonFolder
  private let process = Process()
  var socket: String { folder.socket }
  /// All that it has said so far.
  var log: String { (try? String(contentsOfFile: folder.log, encoding: .utf8)) ?? "" }

  init(_ configuration: String) throws {
    folder = try DaemonFolder()
    try folder.write(
      """
      [server]
      socket = "\(folder.socket)"
      [streams.ticks]
      timer = { every = "20ms" }
      \(configuration)
      """)
    _ = FileManager.default.createFile(atPath: folder.log, contents: nil)
    process.executableURL = streamdProgram
    process.arguments = ["--config", folder.configuration]
    process.standardError = FileHandle(forWritingAtPath: folder.log)
    try process.run()
    while !log.contains(" serves ") {
      guard process.isRunning else { throw SystemError("streamd", log, code: EPROTO) }
      usleep(2000)
    }
  }

  deinit { if process.isRunning { process.terminate() } }

  func signal(_ number: Int32) { kill(process.processIdentifier, number) }

  /// SIGTERM.
  /// - Returns: the exit status.
  func stop() throws -> Int32 {
    signal(SIGTERM)
    process.waitUntilExit()
    return process.terminationReason == .exit ? process.terminationStatus : -process.terminationStatus
  }
}

/// The tests' HTTP server, which counts what it is asked.
final class Upstream: @unchecked Sendable {  // the process is started and ended by one thread
  let url: String
  private let port: UInt16
  private let process = Process()
  private let input = Pipe()

  init() throws {
    let script = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
      .appendingPathComponent("../StreamSourcesTests/Server/server.py").standardizedFileURL
    let output = Pipe()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = ["python3", script.path]
    process.standardInput = input
    process.standardOutput = output
    try process.run()
    var line = Data()
    while let byte = try output.fileHandleForReading.read(upToCount: 1), !byte.isEmpty, byte != Data("\n".utf8) {
      line += byte
    }
    struct Address: Decodable { let port: UInt16 }
    port = try JSONDecoder().decode(Address.self, from: line).port
    url = "http://127.0.0.1:\(port)"
  }

  deinit { process.terminate() }

  /// How many requests a key has had.
  func count(_ key: String) throws -> Int {
    let descriptor = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    let socket = OwnedDescriptor(descriptor)
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    let connected = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
    guard connected == 0 else { throw SystemError("connect") }
    let request = "GET /seen/\(key) HTTP/1.0\r\nConnection: close\r\n\r\n"
    send(socket.raw, request, request.utf8.count, 0)
    var answer: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 4096)
    while true {
      let count = recv(socket.raw, &buffer, buffer.count, 0)
      guard count > 0 else { break }
      answer += buffer[..<count]
    }
    let body = String(decoding: answer, as: UTF8.self).components(separatedBy: "\r\n\r\n").last ?? ""
    return try #require(Int(body))
  }
}

/// A subscriber that asks for exactly what a test says.
final class CreditProbe: Subscriber, Sendable {
  typealias Input = StreamEvent
  typealias Failure = StreamError

  private let subscription = Mutex<Box?>(nil)
  private let events = AsyncStream.makeStream(of: StreamEvent.self)
  private struct Box: @unchecked Sendable {  // a subscription may be called from any thread
    let subscription: any Subscription
  }

  func receive(subscription: any Subscription) {
    let box = Box(subscription: subscription)
    self.subscription.withLock { $0 = box }
  }

  func receive(_ input: StreamEvent) -> Subscribers.Demand {
    events.continuation.yield(input)
    return .none
  }

  func receive(completion: Subscribers.Completion<StreamError>) { events.continuation.finish() }

  func request(_ count: Int) {
    subscription.withLock { $0 }?.subscription.request(.max(count))
  }

  func next() async -> StreamEvent {
    var iterator = events.stream.makeAsyncIterator()
    return await iterator.next() ?? StreamEvent(id: nil, time: nil, data: [])
  }
}
