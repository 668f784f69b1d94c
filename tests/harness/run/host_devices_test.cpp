#include "harness/run/host_devices.h"

#include <gtest/gtest.h>

#include "reference/error.h"

namespace samestate {
namespace {

TEST(HostDevices, ComeBackAsTheyWere) {
  const std::vector<HostDevice> devices = {
      {0, "NVIDIA H100 80GB HBM3", "GPU-8f6d", "0000:1b:00.0", "GPU-8f6d"},
      {3, "of\ttabs", "MIG-8f6d", "", "MIG-8f6d"}};
  const std::vector<HostDevice> back = parse_devices(text_of_devices(devices));
  ASSERT_EQ(back.size(), 2U);
  EXPECT_EQ(back[0].text(), "0: NVIDIA H100 80GB HBM3, GPU-8f6d, 0000:1b:00.0");
  EXPECT_EQ(back[0].visible, "GPU-8f6d");
  EXPECT_EQ(back[1].text(), "3: of tabs, MIG-8f6d");
  EXPECT_TRUE(parse_devices("").empty());
}

TEST(HostDevices, WhatIsNoneIsRefused) {
  for (const char* text : {"x\n", "0\n", "0\tname\tid\tbus\n", "0\tname\tid\tbus\tvisible\tmore\n", " \n"})
    EXPECT_THROW((void)parse_devices(text), Error) << text;
}

}  // namespace
}  // namespace samestate
