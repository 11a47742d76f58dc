import CLinux
import Glibc
import StreamServer
import Testing

@Suite struct DescriptorParcelTests {
  private static let perMessage = DescriptorParcel.mostPerMessage

  /// Files without names, each containing its number.
  private func files(_ count: Int) -> [CInt] {
    (0..<count).map { number in
      let file = memfd_create("number", MFD_CLOEXEC)
      var bytes = number
      write(file, &bytes, MemoryLayout<Int>.size)
      return file
    }
  }

  /// Does not advance their offsets, so that each can be read again.
  private func numbers(_ descriptors: [CInt]) -> [Int] {
    descriptors.map { descriptor in
      var number = -1
      pread(descriptor, &number, MemoryLayout<Int>.size, 0)
      close(descriptor)
      return number
    }
  }

  @Test(arguments: [0, 1, 253, 254, 600]) func descriptorsAreUnpackedInOrder(count: Int) throws {
    let files = files(count)
    let (ends, packed) = try DescriptorParcel.pack(files, perMessage: Self.perMessage)
    for file in files { close(file) }
    #expect(packed == count && (ends.isEmpty == (count == 0)))
    for _ in 0..<2 { #expect(numbers(ends.flatMap { copies(from: $0.end) }) == Array(0..<count)) }
    #expect(ends.first?.first ?? 0 == 0)
    for (end, _) in ends { close(end) }
  }

  private func copies(from end: CInt) -> [CInt] {
    var copies: [CInt] = []
    DescriptorParcel.copy(from: end, perMessage: Self.perMessage) { index, descriptor in
      #expect(index == copies.count)
      copies.append(descriptor)
    }
    return copies
  }

  @Test func descriptorsLeftInAParcelAreClosedWithIt() throws {
    var pair: [CInt] = [-1, -1]
    socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &pair)
    let (ends, _) = try DescriptorParcel.pack([pair[0]], perMessage: Self.perMessage)
    close(pair[0])
    #expect(send(pair[1], "x", 1, CInt(MSG_NOSIGNAL)) == 1)
    for (end, _) in ends { close(end) }
    var byte: UInt8 = 0
    #expect(recv(pair[1], &byte, 1, 0) <= 0)
    close(pair[1])
  }

  @Test func anotherSocketIsAnEmptyParcel() {
    var pair: [CInt] = [-1, -1]
    socketpair(AF_UNIX, CInt(SOCK_SEQPACKET.rawValue | SOCK_CLOEXEC.rawValue), 0, &pair)
    send(pair[1], "x", 1, 0)
    #expect(copies(from: pair[0]).isEmpty)
    for end in pair { close(end) }
  }

  /// A process with a lower limit opens one message after the other, and misses none.
  @Test func aProcessWithFewDescriptorsReachesAll() async {
    await #expect(processExitsWith: .success) {
      let files = (0..<320).map { _ in memfd_create("one", MFD_CLOEXEC) }
      let perMessage = DescriptorParcel.fewPerMessage
      let (ends, count) = try DescriptorParcel.pack(files, perMessage: perMessage)
      #expect(count == files.count)
      for file in files { close(file) }
      var limit = rlimit()
      getrlimit(__rlimit_resource_t(7), &limit)  // RLIMIT_NOFILE
      limit.rlim_cur = rlim_t(ends.map(\.end).max()! + 1 + 20)
      setrlimit(__rlimit_resource_t(7), &limit)
      var reached: Set<Int> = []
      for (end, first) in ends {
        DescriptorParcel.copy(from: end, perMessage: perMessage) { index, descriptor in
          reached.insert(first + index)
          close(descriptor)
        }
      }
      exit(reached == Set(0..<320) ? 0 : 1)
    }
  }
}
