#include "apps/catalog.h"

namespace gravac::apps {

train::Catalog catalog() {
  return {.models = {{"resnet20", "ResNet for 32x32 images, 0.27 M parameters"},
                     {"resnet8", "the smallest ResNet, for quick trials"},
                     {"resnet101", "the paper's ResNet101, 170 MB"},
                     {"vgg-small", "a VGG-style net with a wide head"},
                     {"vgg16", "the paper's VGG16, 528 MB"},
                     {"mlp", "two dense layers"},
                     {"lstm-200", "LSTM with 2 x 200 units", true},
                     {"lstm-650", "LSTM with 2 x 650 units", true},
                     {"lstm-1500", "the paper's LSTM, 252 MB", true},
                     {"transformer", "a small decoder-only transformer", true}},
          .data = {{"images", "drawn images in 10 classes; built in"},
                   {"corpus", "a made-up corpus of words; built in", true},
                   {"cifar10", "CIFAR-10, binary files", false, true},
                   {"cifar100", "CIFAR-100, binary files", false, true},
                   {"mnist", "MNIST, idx files, .gz or not", false, true},
                   {"words", "words, as in the Penn Treebank files", true, true},
                   {"text", "plain text, by character", true, true}}};
}

}  // namespace gravac::apps
