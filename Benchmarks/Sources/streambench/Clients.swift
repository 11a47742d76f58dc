import Dispatch
import Glibc
import Reactive
import StreamClient
import StreamProtocol

/// Measures the client libraries: each reads the stored events of a stream by a Unix socket, and Python's those of mapped
/// memory, too. Those in other languages are made of the tree in which `deploy/bench` runs, in the folder of the daemon, and are
/// programs of `Benchmarks/Clients`.
func measureClients(_ options: Options) throws {
  Report.heading(
    "clients, 64 bytes per event",
    goal: "C 5 M events/s, Python 0.5 M, mapped 2 M, Node 1 M, 3 times NDJSON, 5 times redis")
  let broker = try brokerWithFullLog(options).broker
  let held = try replayed(broker, firstNumber: nil, count: nil, verifies: false).count
  let bare = try BareServer()
  let folder = broker.process.folder
  var readers: [(name: String, seconds: () throws -> Double)] = [
    ("bare limit", { Double(held) / (try bareReplay(bare, count: held)) }),
    ("Swift, StreamClient", { try readBySwift(broker.path, count: held) }),
  ]
  for client in ForeignClient.all {
    if let complaint = try client.make(in: folder) {
      Report.note("\(client.name) is not measured: \(complaint)")
    } else {
      readers.append((client.name, { try client.read(broker.path, count: held, folder) }))
    }
  }
  var rates = [[Double]](repeating: [], count: readers.count)
  for _ in 0..<options.runs {
    for (index, reader) in readers.enumerated() { rates[index].append(Double(held) / (try reader.seconds())) }
  }
  for (index, reader) in readers.enumerated() {
    let bare = Report.percent(Figures(rates[index]).median, of: Figures(rates[0]).median, "bare")
    Report.line(reader.name, Figures(rates[index]), "events/s", index == 0 ? ["\(held) events held"] : [bare])
  }
}

/// A client that is a program.
private struct ForeignClient {
  let name: String
  /// The program that makes or runs it.
  let tool: String
  /// What makes and what starts it; `$0` is the folder for its files.
  let making, command: String
  /// It follows the socket and the number of events.
  var argument = ""

  static let all = [
    ForeignClient(
      name: "C, libstreamd", tool: "cc",
      making: """
        make -s -C Sources/libstreamd BUILD="$0/c" CFLAGS=-O2 && \
        cc -O2 -ISources/libstreamd Benchmarks/Clients/read.c "$0/c/libstreamd.a" -o "$0/read"
        """,
      command: "\"$0/read\""),
    ForeignClient(
      name: "Python, streamd", tool: "python3",
      making: """
        cp -rL Sources/python "$0/python" && \
        python3 -m pip install -q --disable-pip-version-check --no-deps --target "$0/site" "$0/python"
        """,
      command: python),
    ForeignClient(
      name: "Python, streamd, mapped", tool: "python3", making: #"ls "$0/site" > /dev/null"#,  // by the one before
      command: python, argument: "map"),
    ForeignClient(name: "Node, streamd", tool: "node", making: "ls Sources/node > /dev/null", command: node),
    ForeignClient(
      name: "Node, NDJSON by node:http", tool: "node", making: "ls Sources/node > /dev/null", command: node,
      argument: "ndjson"),
    ForeignClient(
      name: "Node, redis pub/sub", tool: "redis-server", making: "command -v node",
      command: #"node Benchmarks/Clients/redis.mjs "$0""#),
  ]
  private static let node = "node Benchmarks/Clients/read.mjs Sources/node"
  private static let python = "PYTHONPATH=\"$0/site\" python3 -B Benchmarks/Clients/read.py"

  /// - Returns: nil, or the last line of what went wrong.
  func make(in folder: String) throws -> String? {
    let check = "command -v \(tool) > /dev/null || { echo there is no \(tool); exit 1; }"
    let (said, status) = try shell("{ \(check); \(making); } 2>&1", folder)
    return status == 0 ? nil : said.last ?? "status \(status)"
  }

  /// - Returns: the seconds from the subscription to the last event.
  func read(_ path: String, count: Int, _ folder: String) throws -> Double {
    let (said, status) = try shell("\(command) '\(path)' \(count) \(argument)", folder)
    guard status == 0, let seconds = said.last.flatMap({ Double($0) }) else {
      throw BenchError("\(name): status \(status)")
    }
    return seconds
  }
}

/// - Returns: the lines of a command's standard output, and its exit status.
func shell(_ command: String, _ folder: String) throws -> (said: [String], status: CInt) {
  // The command has no single quote but those around a path of this program.
  let quoted = command.replacing("'", with: #"'\''"#)
  guard let output = unsafe popen("sh -c '\(quoted)' '\(folder)'", "r") else { throw BenchError("no shell") }
  var lines: [String] = []
  var line = [CChar](repeating: 0, count: 4096)
  while unsafe fgets(&line, CInt(line.count), output) != nil {
    lines.append(String(decoding: line.prefix { $0 != 0 && $0 != 10 }.map { UInt8(bitPattern: $0) }, as: UTF8.self))
  }
  return (lines, unsafe pclose(output))
}

private func readBySwift(_ path: String, count: Int) throws -> Double {
  let connection = try StreamConnection(socket: path)
  let done = DispatchSemaphore(value: 0)
  let start = monotonicSeconds()
  // The loop of the connection alone uses them until it signals.
  nonisolated(unsafe) var (left, last) = (count, nil as UInt64?)
  let sink = connection.stream("b", options: SubscribeOptions(from: .last(UInt64(count))))
    .sink(receiveCompletion: { _ in done.signal() }) { event in
      let isNext = unsafe last == nil || event.id == last.map { $0 + 1 }
      let isRight = isNext && event.gap == nil && event.data.count == EventShape.dataByteCount
      unsafe (left, last) = (isRight ? left - 1 : left, event.id)
      if unsafe left == 0 || !isRight { done.signal() }
    }
  done.wait()
  let seconds = monotonicSeconds() - start
  sink.cancel()
  guard unsafe left == 0 else { throw BenchError("StreamClient: \(unsafe left) events of \(count) were not received") }
  return seconds
}
