import Glibc
import Testing

@testable import StreamRuntime

struct SpawnTests {
  /// The command's output on its pipe, up to its end; and its status as from waitpid(2).
  private func output(of command: (_ pipe: CInt) -> Spawn) throws -> (text: String, status: CInt) {
    let pipe = try Pipe()
    let id = try command(pipe.writing.raw).start()
    var status: CInt = 0
    while waitpid(id, &status, 0) < 0, errno == EINTR {}
    let reading = pipe.nonBlockingReading()
    var bytes = [UInt8](repeating: 0, count: 4096)
    let count = read(reading.raw, &bytes, bytes.count)
    return (String(decoding: bytes.prefix(max(0, count)), as: UTF8.self), status)
  }

  @Test func itsDescriptorsAreTheListedOnesWhateverTheirNumbers() throws {
    let result = try output { pipe in
      var command = Spawn(["sh", "-c", "for n in 3 4 5 6 7 8 9; do echo $n >&$n; done; exec ls /proc/self/fd"])
      // Numbers that are also sources here, which must not be overwritten before they are copied.
      command.descriptors = [.null, .copy(pipe), .null] + Array(repeating: .copy(pipe), count: 97)
      command.environment = nil
      return command
    }
    let lines = result.text.split(separator: "\n")
    #expect(lines.prefix(7) == ["3", "4", "5", "6", "7", "8", "9"])
    #expect(lines.count == 7 + 100 + 1, "and the folder that is read")
    #expect(result.status == 0)
  }

  @Test func noOtherDescriptorIsOpenAndNoSignalIsBlockedOrIgnored() throws {
    let open = try Pipe()
    _ = fcntl(open.reading.raw, F_SETFD, 0)  // not closed on exec
    signal(SIGUSR2, SIG_IGN)
    var blocked = sigset_t()
    var former = sigset_t()
    sigfillset(&blocked)
    pthread_sigmask(SIG_BLOCK, &blocked, &former)
    defer {
      pthread_sigmask(SIG_SETMASK, &former, nil)
      signal(SIGUSR2, SIG_DFL)
    }
    func output(of arguments: String...) throws -> [Substring] {
      try self.output { pipe in
        var command = Spawn(arguments)
        command.descriptors[1] = .copy(pipe)
        return command
      }.text.split(separator: "\n")
    }
    #expect(try output(of: "ls", "/proc/self/fd") == ["0", "1", "2", "3"], "the last is the folder that is read")
    #expect(try output(of: "grep", "SigBlk", "/proc/self/status") == ["SigBlk:\t0000000000000000"])
    // Signals 32 and 33 belong to the C library, which does not let a program change them.
    let ignored = try output(of: "grep", "SigIgn", "/proc/self/status")
    #expect([["SigIgn:\t0000000000000000"], ["SigIgn:\t0000000180000000"]].contains(ignored))
  }

  @Test func aMissingProgramIsAnError() throws {
    #expect(throws: SystemError("posix_spawn", code: ENOENT)) { _ = try Spawn(["/nowhere/program"]).start() }
  }

  @Test func itLeadsItsOwnProcessGroupOnRequest() throws {
    for leadsGroup in [true, false] {
      let result = try output { pipe in
        var command = Spawn([
          "/bin/sh", "-c", "read -r id name state parent group rest < /proc/$$/stat; echo $((id == group))",
        ])
        command.descriptors[1] = .copy(pipe)
        command.leadsGroup = leadsGroup
        return command
      }
      #expect(result.text == (leadsGroup ? "1\n" : "0\n"))
    }
  }
}
