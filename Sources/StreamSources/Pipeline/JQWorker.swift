import CLinux
import Events
import Glibc
import StreamRuntime

/// The process in which programs of a stream, or of those of a template, run: this executable again, with only a socket to
/// the daemon.
///
/// A program can loop, exhaust memory or fail an assertion of libjq. In its own process it affects nothing else, can be
/// killed at any time, and has no access to the daemon's environment and files. After compiling its programs, and
/// before it reads an event, it drops every privilege that it does not need: see `confine`.
enum JQWorker {
  /// The argument of such a process. Its values are the milliseconds of processor time per event and the name of the stream or the
  /// template.
  static let argument = "--jq"

  /// Maximum processor time per event; not elapsed time, which also passes while the machine is busy.
  static let timePerEvent = Duration.seconds(10)
  /// Maximum memory above the amount at start. 8 MiB of small objects take 400 MiB in libjq.
  static let memoryLimit = 1 << 30
  /// Memory above the amount at start from which on the process ends after an event, to be renewed: jq 1.6 leaks (`ltrimstr`
  /// and others). Three quarters of the limit are left for an event.
  static let renewalSize = 256 << 20
  /// The exit status when memory is exhausted, or will soon be.
  static let outOfMemory: CInt = 12

  /// Answers events until the daemon closes the socket, which is standard input.
  static func run() -> Never {
    end_with_parent(SIGKILL)  // also when the daemon is killed during an event
    limitResources()
    let milliseconds = HelperProcess.takeValues().first.flatMap { Int($0) } ?? 0
    let socket = Connection()
    var programs: [JQProgram?] = []
    guard let names = socket.next().map(lines) else { exit(0) }
    do throws(JQProgram.CompileError) {
      for _ in JQTransform().programs {
        guard let text = socket.next() else { exit(0) }
        programs.append(try compile(text, names))
      }
    } catch {
      socket.send(JQAnswer(failure: error.sentence))
      exit(0)
    }
    var ready = JQAnswer()
    do throws(SystemError) { try confine() } catch { ready.outputs = [.init(event: Array("\(error)".utf8))] }
    socket.send(ready)
    let canMeasure = hasRoom()  // the machine may refuse that much at any size of the process
    while let event = socket.next(names, for: programs) {
      limitTime(to: milliseconds)  // a signal ends the process at the limit; the daemon sees which
      let answer = answer(Array(event), programs)
      limitTime(to: 0)
      socket.send(answer)
      if canMeasure, !hasRoom() { exit(outOfMemory) }
    }
    exit(0)
  }

  /// Restricts this process to its processor time, its memory and standard input. An exploited bug of libjq then
  /// reaches only the other events of these streams.
  ///
  /// - Throws: the feature that the kernel lacks. All other restrictions apply nevertheless.
  static func confine() throws(SystemError) {
    // Loads the time zone for jq's time functions now. Unless TZ is set, glibc checks the file with each call, and uses
    // UTC when it cannot.
    unsafe setenv("TZ", ":/etc/localtime", 1)
    tzset()
    refuse_inspection()
    for resource in [RLIMIT_NOFILE, RLIMIT_FSIZE, __RLIMIT_NPROC] { limit(resource, 0) }
    guard confine_to_descriptor_0() == 0 else { throw SystemError("seccomp") }
  }

  private static func lines(_ message: ArraySlice<UInt8>) -> [String] {
    message.split(separator: UInt8(ascii: "\n")).map { String(decoding: $0, as: UTF8.self) }
  }

  private static func compile(
    _ text: ArraySlice<UInt8>, _ names: [String]
  ) throws(JQProgram.CompileError) -> JQProgram? {
    guard !text.isEmpty else { return nil }
    let text = String(decoding: text, as: UTF8.self)
    let program = try JQProgram(text, variables: JQTransform.variables(in: text, among: names))
    unsafe program.whenOutOfMemory { _ in _exit(JQWorker.outOfMemory) }
    return program
  }

  /// - Parameter programs: as `JQTransform.programs`.
  static func answer(_ event: [UInt8], _ programs: [JQProgram?]) -> JQAnswer {
    let (program, distinctBy, key, tombstone) = (programs[0], programs[1], programs[2], programs[3])
    var answer = JQAnswer()
    do throws(JQProgram.ValueError) {
      answer.outputs = try program?.outputs(for: event).map { JQAnswer.Output(event: $0) } ?? [JQAnswer.Output()]
    } catch {
      answer.failure = error.sentence
    }
    var byteCount = 0
    for index in answer.outputs.indices {
      let event = answer.outputs[index].event ?? event
      if let distinctBy {
        do throws(JQProgram.ValueError) {
          let compared = try compared(event, by: distinctBy)
          byteCount += compared.count
          guard byteCount <= JQProgram.bytesLimit else {
            throw .init("more than \(JQProgram.bytesLimit >> 20) MiB are compared")
          }
          answer.outputs[index].distinctBy = compared
        } catch {
          answer.failure = "distinct: \(error.sentence)"
        }
      }
      if let key {
        do throws(JQProgram.ValueError) {
          answer.outputs[index].key = try self.key(of: event, key, tombstone)
        } catch {
          answer.failure = "key: \(error.sentence)"
        }
      }
    }
    return answer
  }

  /// The part of an event that is compared. Numbers at a path are equal if their decimal values are equal.
  private static func compared(_ event: [UInt8], by program: JQProgram) throws(JQProgram.ValueError) -> [UInt8] {
    guard let value = program.value(in: event) else {
      return Array(try program.outputs(for: event).joined(separator: [UInt8(ascii: "\n")]))
    }
    var scalar: [UInt8] = []
    EventKeyReader.append(value.span, to: &scalar)
    return scalar.isEmpty ? value : scalar
  }

  private static func key(
    of event: [UInt8], _ key: JQProgram, _ tombstone: JQProgram?
  ) throws(JQProgram.ValueError) -> EventKey? {
    guard let value = try result(of: key, for: event) else { return nil }
    var bytes: [UInt8] = []
    EventKeyReader.append(value.span, to: &bytes)
    let isTombstone = try tombstone.map { program throws(JQProgram.ValueError) in
      try result(of: program, for: event) == Array("true".utf8)
    }
    return EventKey(bytes, isTombstone: isTombstone ?? false)
  }

  /// - Returns: the only output; nil if there is none.
  private static func result(
    of program: JQProgram, for event: [UInt8]
  ) throws(JQProgram.ValueError) -> [UInt8]? {
    let outputs = try program.outputs(for: event)
    guard outputs.count < 2 else { throw .init("\(outputs.count) outputs, where one at most is expected") }
    return outputs.first
  }

  /// Whether the process is smaller than `renewalSize`. Maps the rest up to the limit, and unmaps it untouched: two system
  /// calls. The process cannot open a file for this.
  static func hasRoom() -> Bool {
    let byteCount = memoryLimit - renewalSize
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
    let room = unsafe mmap(nil, byteCount, PROT_READ | PROT_WRITE, flags, -1, 0)
    guard unsafe room != MAP_FAILED else { return false }
    unsafe munmap(room, byteCount)
    return true
  }

  static func limitResources() {
    // Under a sanitizer the process already uses more than the limit.
    var field: [CChar] = Array(repeating: 0, count: 256)
    let statm = unsafe open("/proc/self/statm", O_RDONLY | O_CLOEXEC)
    let count = unsafe max(0, read(statm, &field, field.count - 1))
    close(statm)
    let pages = field[..<count].split(separator: CChar(bitPattern: UInt8(ascii: " "))).dropFirst(5).first
    let dataPages = pages.flatMap { Int(String(decoding: $0.map(UInt8.init(bitPattern:)), as: UTF8.self)) } ?? 0
    limit(RLIMIT_DATA, dataPages * sysconf(CInt(_SC_PAGESIZE)) + memoryLimit)
    limit(RLIMIT_CORE, 0)
    // The kernel kills this process first when the machine runs out of memory.
    let score = unsafe open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC)
    unsafe write(score, "1000", 4)
    close(score)
  }

  /// - Parameter milliseconds: 0: no limit.
  private static func limitTime(to milliseconds: Int) {
    var timer = itimerval()
    timer.it_value = timeval(tv_sec: milliseconds / 1000, tv_usec: milliseconds % 1000 * 1000)
    unsafe setitimer(__itimer_which_t(ITIMER_PROF.rawValue), &timer, nil)
  }

  private static func limit(_ resource: __rlimit_resource, _ most: Int) {
    var limit = rlimit(rlim_cur: rlim_t(most), rlim_max: rlim_t(most))
    unsafe setrlimit(__rlimit_resource_t(resource.rawValue), &limit)
  }

  /// Standard input, a socket. Blocks.
  private final class Connection {
    private var reader = HelperMessageReader()
    private var values: ArraySlice<UInt8> = []
    private var buffer = [UInt8](repeating: 0, count: 65536)

    /// The next event, once the programs have the values of variables for it; nil at the end.
    func next(_ names: [String], for programs: [JQProgram?]) -> ArraySlice<UInt8>? {
      guard !names.isEmpty else { return next() }
      guard let message = next() else { return nil }
      if message != values {
        values = message
        let variables = Dictionary(zip(names, lines(message))) { $1 }
        for program in programs { program?.setVariables(variables) }
      }
      return next()
    }

    /// nil at the end.
    func next() -> ArraySlice<UInt8>? {
      while true {
        if let message = reader.next() { return message }
        let count = unsafe read(STDIN_FILENO, &buffer, buffer.count)
        guard count > 0 else { return nil }
        unsafe buffer.withUnsafeBytes { unsafe reader.append(UnsafeRawBufferPointer(rebasing: $0[..<count])) }
      }
    }

    /// Sends at once: the first unanswered event caused the process's end.
    func send(_ answer: JQAnswer) {
      var bytes: [UInt8] = []
      bytes.appendMessage(answer.encoded)
      HelperProcess.send(bytes)
    }
  }
}
