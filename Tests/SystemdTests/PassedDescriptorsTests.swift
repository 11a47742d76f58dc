import Glibc
import Testing

@testable import Systemd

struct PassedDescriptorsTests {
  private func unixSocket(_ type: __socket_type, isListening: Bool) -> CInt {
    let descriptor = socket(AF_UNIX, CInt(type.rawValue), 0)
    if isListening {
      var address = sockaddr_un()
      address.sun_family = sa_family_t(AF_UNIX)
      let length = socklen_t(MemoryLayout<sa_family_t>.size)  // no name: the kernel chooses one
      _ = withUnsafePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, length) }
      }
      #expect(listen(descriptor, 1) == 0)
    }
    return descriptor
  }

  @Test func listeningStreamSocketsAreTakenInOrder() {
    let first = unixSocket(SOCK_STREAM, isListening: true)
    let second = unixSocket(SOCK_STREAM, isListening: true)
    defer {
      close(first)
      close(second)
    }
    let passed = PassedDescriptors([(first, "streamd.socket"), (second, "more")])
    #expect(passed.listeners.map(\.descriptor) == [first, second])
    #expect(passed.listeners.map(\.name) == ["streamd.socket", "more"])
    #expect(passed.refusals.isEmpty)
  }

  @Test func unusableDescriptorsAreClosedAndReported() {
    let connected = unixSocket(SOCK_STREAM, isListening: false)
    let datagram = unixSocket(SOCK_DGRAM, isListening: false)
    let file = open("/dev/null", O_RDONLY)
    let passed = PassedDescriptors([(connected, "a"), (datagram, "b"), (file, "c")])
    #expect(passed.listeners.isEmpty)
    #expect(passed.refusals.map(\.name) == ["a", "b", "c"])
    #expect(passed.refusals.first?.reason == "descriptor \(connected) is not a listening stream socket")
  }

  @Test func storedDescriptorsAreRecognizedByTheirName() {
    let listening = unixSocket(SOCK_STREAM, isListening: true)
    let stored = unixSocket(SOCK_STREAM, isListening: true)
    let file = open("/dev/null", O_RDONLY)
    defer { for descriptor in [listening, stored, file] { close(descriptor) } }
    let passed = PassedDescriptors([(listening, "streamd.socket"), (stored, "kept-a"), (file, "kept-log-7")])
    #expect(passed.listeners.map(\.name) == ["streamd.socket"])
    #expect(passed.stored == [.init(descriptor: stored, name: "a"), .init(descriptor: file, name: "log-7")])
    #expect(passed.refusals.isEmpty)
  }

  @Test func aRefusedDescriptorIsClosed() {
    var ends: [CInt] = [0, 0]
    #expect(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0)
    #expect(PassedDescriptors([(ends[1], "pair")]).refusals.count == 1)
    var byte: UInt8 = 0
    #expect(read(ends[0], &byte, 1) == 0)  // the end, because the other end is closed; its number may be reused
    close(ends[0])
  }
}
